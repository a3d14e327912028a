"""Measure SecureD-FL beside its baselines: `python -m scripts.measured_peers FOLDER ...` writes the
table.

The folders hold runs of secured_fl/fig3_femnist and secured_fl/fig3_shakespeare, at any depth. The
table is results/secured_fl.csv. The script also prints the text for docs/papers/secured_fl.md; a
test compares it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fedpriv.papers.secured_fl.peer_accuracy import summary, table_of
from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.number_table import read_table

TABLE = Path(__file__).parents[1] / "results" / "secured_fl.csv"
FEDAVG = "FedAvg"
LOCAL = "Local-only"
PEERS = "SecureD-FL"
WITHIN = 0.5
"""Points of accuracy that SecureD-FL may be below FedAvg."""

Row = dict[str, str]


def main(words: list[str]) -> None:
    """Write the table of the runs in some folders."""
    TABLE.parent.mkdir(exist_ok=True)
    found = summary(table_of(find_runs([Path(word) for word in words])))
    found.to_csv(TABLE, index=False, float_format="%.5f")
    print(page(read()))


def read(path: Path = TABLE) -> list[Row]:
    """The rows of the table."""
    return read_table(path)


def page(table: list[Row]) -> str:
    """Accuracies in per cent, a row for each task and method, and a sentence for each task."""
    lines = [
        "| records | peers | method | rounds | seeds | last round | best round |",
        "| --- " * 7 + "|",
    ]
    tasks: dict[tuple[str, str], dict[str, Row]] = {}
    for row in table:
        last, best = (_cell(row, key) for key in ("last", "best"))
        about = (row[key] for key in ("peers", "method", "rounds", "seeds"))
        lines.append(f"| {' | '.join((_short(row['data']), *about, last, best))} |")
        tasks.setdefault((row["data"], row["peers"]), {})[row["method"]] = row
    return "\n".join([*lines, "", *(_sentence(*task, methods) for task, methods in tasks.items())])


def _sentence(data: str, peers: str, methods: dict[str, Row]) -> str:
    """The distance of SecureD-FL's variants from FedAvg in the last round, and the methods above
    Local-only."""
    last = {method: _points(row, "last") for method, row in methods.items()}
    said = []
    for method in (name for name in last if name.startswith(PEERS)):
        gap = last[method] - last[FEDAVG]
        reach = "within" if gap >= -WITHIN else "not within"
        said.append(
            f"{method} is {abs(gap):.2f} points {'above' if gap >= 0 else 'below'} FedAvg "
            f"({reach} {WITHIN:g})"
        )
    above = [method for method in last if method != LOCAL and last[method] > last[LOCAL]]
    return (
        f"- {_short(data)}, {peers} peers: {'; '.join(said)}; above Local-only: "
        f"{', '.join(above) or 'none'}."
    )


def _short(data: str) -> str:
    return re.split(r" with |, ", data)[0]


def _cell(row: Row, key: str) -> str:
    """With a deviation where there are several seeds."""
    deviation = f" ± {_points(row, key + ' deviation'):.2f}" if int(row["seeds"]) > 1 else ""
    return f"{_points(row, key):.2f}{deviation}"


def _points(row: Row, key: str) -> float:
    return 100 * float(row[key])


if __name__ == "__main__":
    main(sys.argv[1:])
