"""One method beside another at full length: `python -m scripts.measured_pairs uldp_fl_fig6=FOLDER`
writes its table.

Folders hold the runs of the figure's experiment, in sub-folders or not. Results go to
results/<name>.csv; what verdicts say of them is printed, and a test fails until they say it.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.papers.lowy.error_tradeoff import CALIBRATIONS
from fedpriv.papers.reproduce import silos, users
from fedpriv.reports.compare import holm, paired_test
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import standard_deviation

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("cell", "round", "method", "seeds", "mean", "deviation", "difference", "p", "holm")
LEVEL = 0.05


@dataclass(frozen=True)
class Pairs:
    """metric: of the runs' metrics. against: the method that every other one is compared with, on
    the same seeds. rounds: when. cell: what a run's setting is, beside method and seed."""

    metric: str
    against: str
    rounds: tuple[int, ...]
    cell: Callable[[Mapping[str, Any]], str]


def noise(config: Mapping[str, Any]) -> str:
    return CALIBRATIONS[config["algo"]["calibration"]]


TABLES = {
    "uldp_fl_fig6": Pairs("accuracy", "ULDP-SGD", (10, 50), users),
    "uldp_fl_fig8": Pairs("loss", "ULDP-AVG", (5, 20), silos),
    "hu_fig5": Pairs("train_loss", "DP-SGD", (5, 20), noise),
    "hu_fig6": Pairs("gradient_norm", "DP-SGD", (10, 50), noise),
}
Row = dict[str, str]


def main(words: Sequence[str]) -> None:
    """Write the tables that the words name, of the runs in their folders."""
    RESULTS.mkdir(exist_ok=True)
    for word in words:
        name, _, folder = word.partition("=")
        write_table(RESULTS / f"{name}.csv", COLUMNS, rows(TABLES[name], find_runs([Path(folder)])))
        print("\n".join(sentences(name)))


def rows(pairs: Pairs, runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """A row of `COLUMNS` for each cell, round and method. difference, p: from the one that all are
    compared with, by a paired t-test; holm: corrected for all of the table's."""
    cells: dict[str, dict[str, dict[int, Run]]] = {}
    for run in runs:
        cells.setdefault(pairs.cell(run.config), {}).setdefault(run.label, {})[run.seed] = run
    found: list[tuple[Any, ...]] = []
    for cell, methods in sorted(cells.items()):
        for round in pairs.rounds:
            values = {
                name: {seed: _at(run, pairs.metric, round) for seed, run in by_seed.items()}
                for name, by_seed in methods.items()
            }
            for name, own in sorted(values.items()):
                n, difference, p = paired_test(own, values[pairs.against])
                told = [*own.values()]
                found.append(
                    (cell, round, name, n, np.mean(told), standard_deviation(told), difference, p)
                )
    corrected = holm([row[-1] for row in found])
    return [
        (*row[:4], *(f"{number:.6g}" for number in (*row[4:], value)))
        for row, value in zip(found, corrected)
    ]


def _at(run: Run, metric: str, round: int) -> float:
    return float(run.metrics.set_index("round")[metric].loc[round])


def read(name: str) -> list[Row]:
    """A table as it is."""
    with open(RESULTS / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def sentences(name: str) -> list[str]:
    """What a table comes to, a sentence for each round and method."""
    pairs = TABLES[name]
    table = read(name)
    told = []
    for round in pairs.rounds:
        for method in sorted({row["method"] for row in table} - {pairs.against}):
            here = [row for row in table if (int(row["round"]), row["method"]) == (round, method)]
            ends = [f"{end(float(row['difference']) for row in here):+.3f}" for end in (min, max)]
            resolved = sum(float(row["holm"]) < LEVEL for row in here)
            what = pairs.metric.replace("_", " ")
            told.append(
                f"after {round} rounds {method}'s {what} minus {pairs.against}'s is {ends[0]} to "
                f"{ends[1]}, significant in {resolved} of {len(here)} settings"
            )
    return told


if __name__ == "__main__":
    main(sys.argv[1:])
