"""Measure the study: `python -m scripts.measured_study breast_cancer=FOLDER creditcard=FOLDER`
writes the table.

Each folder has the study.csv of `fedpriv reproduce study/... --profile paper`. Data that are not
named keep their rows. The table is results/study.csv. The script also prints the text for
docs/study.md; tests compare it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedpriv.papers.study.methods import RECORD, USER
from fedpriv.papers.study.table import (
    baselines,
    compare_with_reference,
    epsilons,
    read,
    write,
)
from fedpriv.papers.study.table import rows as table_rows

TABLE = Path(__file__).parents[1] / "results" / "study.csv"
Measured = dict[str, pd.DataFrame]
"""The study's table by the name of the data."""


def main(words: list[str]) -> None:
    """Write the table of the words `data=folder`."""
    folders = {data: Path(folder) for data, folder in (word.split("=", 1) for word in words)}
    measured = (table() if TABLE.exists() else {}) | {
        data: read(one / "study.csv") for data, one in folders.items()
    }
    write(pd.concat(measured, names=["data"]).reset_index("data"), TABLE)
    print(page(table()))


def table(path: Path = TABLE) -> Measured:
    """The rows of the table."""
    groups = read(path).groupby("data", sort=False)
    return {str(data): rows.drop(columns="data") for data, rows in groups}


def page(measured: Measured) -> str:
    """The page's text about the numbers."""
    parts = []
    for data, rows in measured.items():
        for unit in (USER, RECORD):
            parts += [f"### {data}: {unit}s", errors(rows, unit)]
        parts.append(f"Without privacy: {without_privacy(rows)}.")
    return "\n\n".join(parts)


def errors(rows: pd.DataFrame, unit: str) -> str:
    """Test errors in per cent: a row for each method, a column for each epsilon."""
    known = epsilons(rows)
    by_epsilon = {epsilon: compare_with_reference(rows, unit, epsilon) for epsilon in known}
    cells = {epsilon: _cells(found) for epsilon, found in by_epsilon.items()}
    lines = _head("method", *(f"epsilon {epsilon:g}" for epsilon in known))
    for method in by_epsilon[known[-1]]["method"]:
        shown = (cells[epsilon].get(method, "") for epsilon in known)
        lines.append(f"| {method} | {' | '.join(shown)} |")
    return "\n".join(lines)


def without_privacy(rows: pd.DataFrame) -> str:
    """The errors of methods without noise."""
    return ", ".join(
        f"{free.method} {100 * free.mean:.1f} ± {100 * free.deviation:.1f}"
        for free in table_rows(baselines(rows))
    )


def _head(*names: str) -> list[str]:
    return [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]


def _cells(found: pd.DataFrame) -> dict[str, str]:
    """By method: an asterisk where it is significantly worse than the reference; the smallest mean
    error, and what is significantly better, in bold."""
    cells = {}
    for one in table_rows(found):
        text = f"{100 * one.mean:.1f} ± {100 * one.deviation:.1f}"
        if one.mean == found["mean"].min() or one.verdict == "better":
            text = f"**{text}**"
        cells[one.method] = text + {"worse": "*", "better": " better"}.get(one.verdict, "")
    return cells


if __name__ == "__main__":
    main(sys.argv[1:])
