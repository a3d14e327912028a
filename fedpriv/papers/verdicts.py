"""What each paper reports in a figure, and what this package found: `verdicts.yaml`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

VERDICTS = ("confirmed", "refuted", "open")
"""Open: not resolved; `found` says why."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one figure.

    reports: the paper's claim.
    verdict: one of `VERDICTS`.
    found: the numbers here.
    tests: names of the tests that check it, as pytest writes them.
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


def _of_paper(paper: str) -> dict[str, Verdict]:
    """The figures whose names start with the paper's."""
    return {name: one for name, one in verdicts().items() if name.partition("/")[0] == paper}


def markdown_table(paper: str) -> str:
    """A paper's figures and their verdicts."""
    lines = ["| figure | the paper reports | verdict | found here |", "| --- | --- | --- | --- |"]
    lines += [
        f"| `{name}` | {one.reports} | **{one.verdict}** | {one.found} |"
        for name, one in _of_paper(paper).items()
    ]
    return "\n".join(lines)


def count_verdicts(paper: str) -> str:
    """How many of a paper's figures have each verdict, as text."""
    counts = Counter(one.verdict for one in _of_paper(paper).values())
    return ", ".join(f"{counts[word]} {word}" for word in VERDICTS if counts[word])
