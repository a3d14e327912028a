"""Measure SecureD-FL beside its baselines: `python -m scripts.measured_peers FOLDER ...` writes the
table.

The folders hold runs of secured_fl/fig3_femnist and secured_fl/fig3_shakespeare, at any depth. The
table is results/secured_fl.csv. The script also prints the text for docs/papers/secured_fl.md; a
test compares it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from fedpriv.papers.secured_fl.peer_accuracy import summary, table_of
from fedpriv.reports.finished_runs import find_runs

TABLE = Path(__file__).parents[1] / "results" / "secured_fl.csv"


def main(words: list[str]) -> None:
    """Write the table of the runs in some folders."""
    TABLE.parent.mkdir(exist_ok=True)
    found = summary(table_of(find_runs([Path(word) for word in words])))
    found.to_csv(TABLE, index=False, float_format="%.5f")
    print(page(read()))


def read(path: Path = TABLE) -> pd.DataFrame:
    """The rows of the table."""
    return pd.read_csv(path)


def page(table: pd.DataFrame) -> str:
    """Accuracies in per cent, a row for each task and method."""
    table = table.assign(data=table["data"].str.split(r" with |, ", regex=True).str[0])
    lines = [
        "| records | peers | method | rounds | seeds | last round | best round |",
        "| --- " * 7 + "|",
    ]
    about = table[["data", "peers", "method", "rounds", "seeds"]]
    cells = zip(about.to_numpy().tolist(), cell(table, "last"), cell(table, "best"))
    lines += [f"| {' | '.join(map(str, (*own, last, best)))} |" for own, last, best in cells]
    return "\n".join(lines)


def cell(table: pd.DataFrame, key: str) -> list[str]:
    """Accuracies in per cent, with a deviation where there are several seeds."""
    rows = zip(100 * table[key], 100 * table[f"{key} deviation"], table["seeds"])
    return [f"{mean:.2f}{f' ± {spread:.2f}' if seeds > 1 else ''}" for mean, spread, seeds in rows]


if __name__ == "__main__":
    main(sys.argv[1:])
