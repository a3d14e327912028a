"""Measure the study: `python -m scripts.measured_study breast_cancer=FOLDER creditcard=FOLDER`
writes the table.

Each folder has the study.csv of `fedpriv reproduce study/... --profile paper`. Data that are not
named keep their rows. The table is results/study.csv. The script also prints the text for
docs/study.md; tests compare it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

from fedpriv.papers.study.methods import RECORD, USER
from fedpriv.papers.study.orders import check_orders
from fedpriv.papers.study.table import (
    COLUMNS,
    REFERENCES,
    ReferenceComparison,
    StudyRow,
    baselines,
    cells,
    compare_with_reference,
    epsilons,
    from_cells,
    read,
)
from fedpriv.reports.number_table import read_table, write_table

TABLE = Path(__file__).parents[1] / "results" / "study.csv"
Measured = dict[str, list[StudyRow]]
"""Rows by the name of the data."""


def main(words: list[str]) -> None:
    """Write the table of the words `data=folder`."""
    folders = {data: Path(folder) for data, folder in (word.split("=", 1) for word in words)}
    measured = (table() if TABLE.exists() else {}) | {
        data: read(one / "study.csv") for data, one in folders.items()
    }
    rows = ([data, *cells(row)] for data, rows in measured.items() for row in rows)
    write_table(TABLE, ("data", *COLUMNS), rows)
    print(page(table()))


def table(path: Path = TABLE) -> Measured:
    """The rows of the table."""
    measured: Measured = {}
    for line in read_table(path):
        measured.setdefault(line["data"], []).append(from_cells(line))
    return measured


def page(measured: Measured) -> str:
    """The page's text about the numbers."""
    parts = []
    for data, rows in measured.items():
        for unit in (USER, RECORD):
            parts += [f"### {data}: {unit}s", errors(rows, unit), sentences(rows, unit)]
        parts += [f"### {data}: the papers' orders", reported(rows)]
        parts += [f"### {data}: what else the noise keeps", costs(rows)]
    return "\n\n".join(parts)


def errors(rows: Sequence[StudyRow], unit: str) -> str:
    """Test errors in per cent: a row for each method, a column for each epsilon."""
    known = epsilons(rows)
    by_epsilon = {
        epsilon: {one.row.method: one for one in compare_with_reference(rows, unit, epsilon)}
        for epsilon in known
    }
    lines = [
        "| method | paper | its unit | "
        f"{' | '.join(f'epsilon {epsilon:g}' for epsilon in known)} |",
        "| --- " * (3 + len(known)) + "|",
    ]
    least = {
        epsilon: min(one.row.mean for one in found.values())
        for epsilon, found in by_epsilon.items()
        if found
    }
    for first in by_epsilon[known[-1]].values():
        shown = (
            _cell(by_epsilon[epsilon].get(first.row.method), least.get(epsilon))
            for epsilon in known
        )
        lines.append(
            f"| {first.row.method} | {first.row.paper} | {first.row.protects} | "
            f"{' | '.join(shown)} |"
        )
    for free in baselines(rows):
        cell = f"{100 * free.mean:.1f} ± {100 * free.deviation:.1f}"
        lines.append(
            f"| {free.method} | {free.paper} | none, not private | "
            f"{' | '.join([cell] * len(known))} |"
        )
    return "\n".join(lines)


def _cell(one: ReferenceComparison | None, least: float | None) -> str:
    """The verdict beside the reference where the difference is significant; the smallest mean error
    of a column, and what is significantly better than the reference, in bold."""
    if one is None:
        return ""
    text = f"{100 * one.row.mean:.1f} ± {100 * one.row.deviation:.1f}"
    if one.row.mean == least or one.verdict == "better":
        text = f"**{text}**"
    return text if one.verdict == "not resolved" else f"{text} {one.verdict}"


def sentences(rows: Sequence[StudyRow], unit: str) -> str:
    """At each epsilon, which methods differ significantly from the reference."""
    return "\n".join(_sentence(rows, unit, epsilon) for epsilon in epsilons(rows))


def _sentence(rows: Sequence[StudyRow], unit: str, epsilon: float) -> str:
    found = [
        one
        for one in compare_with_reference(rows, unit, epsilon)
        if one.row.method != REFERENCES[unit]
    ]
    parts = []
    for verdict in ("better", "worse", "not resolved"):
        names = [f"{one.row.method}{_p(one)}" for one in found if one.verdict == verdict]
        parts.append(f"{verdict}: {', '.join(names) or 'none'}")
    return f"- epsilon {epsilon:g}, beside {REFERENCES[unit]}: {'; '.join(parts)}."


def _p(one: ReferenceComparison) -> str:
    """Rounded up, so that the text never overstates a difference."""
    if math.isnan(one.p):
        return " (no test)"
    return " (p < 0.001)" if one.p < 0.001 else f" (p = {math.ceil(1000 * one.p) / 1000:.3g})"


def reported(rows: Sequence[StudyRow]) -> str:
    """The orders that papers report: mean errors of both methods in per cent, and the verdict."""
    known = epsilons(rows)
    lines = [
        "| paper | unit | is said to err less | than | "
        f"{' | '.join(f'epsilon {epsilon:g}' for epsilon in known)} |",
        "| --- " * (4 + len(known)) + "|",
    ]
    texts: dict[tuple[str, ...], list[str]] = {}
    for one in check_orders(rows):
        errors = " and ".join(f"{100 * error:.1f}" for error in one.errors)
        texts.setdefault((one.paper, one.unit, one.first, one.second), []).append(
            f"{errors}: {one.verdict}"
        )
    lines += [f"| {' | '.join((*order, *text))} |" for order, text in texts.items()]
    return "\n".join(lines)


def costs(rows: Sequence[StudyRow]) -> str:
    """At the middle epsilon: the server's epsilon, and the paper's claim."""
    known = epsilons(rows)
    shown = known[len(known) // 2]
    head = (
        "| method | unit | certified, released model | certified, server | claimed | records | "
        f"settings at {shown:g} |"
    )
    lines = [head, "| --- " * 7 + "|"]
    for r in rows:
        if r.epsilon == shown:
            numbers = f"{r.certified:.3g} | {_epsilon(r.server)} | {_epsilon(r.claimed)}"
            settings = r.settings.replace("algo.", "")
            lines.append(f"| {r.method} | {r.unit} | {numbers} | {r.records} | `{settings}` |")
    return "\n".join(lines)


def _epsilon(value: float) -> str:
    return "" if math.isnan(value) else "infinite" if math.isinf(value) else f"{value:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
