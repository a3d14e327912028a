"""Measure the study: `python -m scripts.measured_study breast_cancer=FOLDER creditcard=FOLDER`
writes the table.

Each folder has the study.csv of `fedpriv reproduce study/... --profile paper`. Data that are not
named keep their rows. The table is results/study.csv. The script also prints the text for
docs/study.md; tests compare it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fedpriv.papers.study.methods import RECORD, USER
from fedpriv.papers.study.orders import check_orders
from fedpriv.papers.study.table import (
    COLUMNS,
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
            parts += [f"### {data}: {unit}s", errors(rows, unit)]
        parts.append(f"Without privacy: {without_privacy(rows)}.")
    parts += ["### The papers' orders", reported(measured)]
    return "\n\n".join(parts)


def errors(rows: Sequence[StudyRow], unit: str) -> str:
    """Test errors in per cent: a row for each method, a column for each epsilon."""
    known = epsilons(rows)
    by_epsilon = {
        epsilon: {one.row.method: one for one in compare_with_reference(rows, unit, epsilon)}
        for epsilon in known
    }
    least = {
        epsilon: min(one.row.mean for one in found.values())
        for epsilon, found in by_epsilon.items()
        if found
    }
    lines = _head("method", *(f"epsilon {epsilon:g}" for epsilon in known))
    for method in by_epsilon[known[-1]]:
        shown = (_cell(by_epsilon[epsilon].get(method), least.get(epsilon)) for epsilon in known)
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def without_privacy(rows: Sequence[StudyRow]) -> str:
    """The errors of methods without noise."""
    return ", ".join(
        f"{free.method} {100 * free.mean:.1f} ± {100 * free.deviation:.1f}"
        for free in baselines(rows)
    )


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]


def _cell(one: ReferenceComparison | None, least: float | None) -> str:
    """The verdict beside the reference where the difference is significant; the smallest mean error
    of a column, and what is significantly better than the reference, in bold."""
    if one is None:
        return ""
    text = f"{100 * one.row.mean:.1f} ± {100 * one.row.deviation:.1f}"
    if one.row.mean == least or one.verdict == "better":
        text = f"**{text}**"
    return text if one.verdict == "not resolved" else f"{text} {one.verdict}"


def reported(measured: Measured) -> str:
    """Whether the orders that papers report are confirmed, by the numbers of the tables above."""
    known = epsilons(next(iter(measured.values())))
    lines = _head("data", "unit", "errs less, a paper says", *(f"epsilon {one:g}" for one in known))
    for data, rows in measured.items():
        verdicts: dict[tuple[str, ...], list[str]] = {}
        for one in check_orders(rows):
            order = data, one.unit, f"{one.first} than {one.second}"
            verdicts.setdefault(order, []).append(one.verdict)
        lines += [f"| {' | '.join((*order, *found))} |" for order, found in verdicts.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    main(sys.argv[1:])
