"""What each paper reports in a figure, and what became of it here: `verdicts.yaml`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

KINDS = ("confirmed", "refuted", "open")
"""Open: not resolved, for what `found` says."""


@dataclass(frozen=True)
class Verdict:
    """reports: what the paper says of the figure.
    found: the numbers here.
    tests: pytest's names of what holds them.
    """

    reports: str
    verdict: str
    found: str
    tests: tuple[str, ...] = ()


@cache
def verdicts() -> dict[str, Verdict]:
    """By the figure's name for `fedpriv reproduce`."""
    known = yaml.safe_load((files("fedpriv.papers") / "verdicts.yaml").read_text())
    return {
        name: Verdict(**{**entry, "tests": tuple(entry.get("tests", ()))})
        for name, entry in known.items()
    }


def table(paper: str) -> str:
    """A Markdown table of one paper's figures, given by the first part of their names."""
    rows = {name: one for name, one in verdicts().items() if name.partition("/")[0] == paper}
    lines = ["| figure | the paper reports | verdict | found here |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{name}` | {one.reports} | **{one.verdict}** | {one.found} |"
        for name, one in rows.items()
    ]
    return "\n".join(lines)


def counted(paper: str) -> str:
    """How many figures of a paper have which verdict, as text."""
    kinds = Counter(
        one.verdict for name, one in verdicts().items() if name.partition("/")[0] == paper
    )
    return ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
