"""Compare methods at full length: `python -m scripts.measured_pairs uldp_fl_fig6=FOLDER` writes a
table.

The folder holds the runs of the figure's experiment, at any depth. The table is results/<name>.csv.
The script also prints the sentences for the verdicts; a test compares them.
"""

from __future__ import annotations

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
from fedpriv.reports.number_table import read_table, write_table
from fedpriv.reports.summary import standard_deviation

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("setting", "round", "method", "seeds", "mean", "deviation", "difference", "p", "holm")
LEVEL = 0.05


@dataclass(frozen=True)
class Pairs:
    """A comparison of methods.

    metric: name of the metric.
    against: the method that the others are compared with, on the same seeds.
    rounds: when.
    setting: a run's setting, without method and seed, from its configuration.
    """

    metric: str
    against: str
    rounds: tuple[int, ...]
    setting: Callable[[Mapping[str, Any]], str]


def noise(config: Mapping[str, Any]) -> str:
    """The calibration of a run's noise."""
    return CALIBRATIONS[config["algo"]["calibration"]]


TABLES = {
    "uldp_fl_fig6": Pairs("accuracy", "ULDP-SGD", (10, 50), users),
    "uldp_fl_fig8": Pairs("loss", "ULDP-AVG", (5, 20), silos),
    "hu_fig5": Pairs("train_loss", "DP-SGD", (5, 20), noise),
    "hu_fig6": Pairs("gradient_norm", "DP-SGD", (10, 50), noise),
}


def main(words: Sequence[str]) -> None:
    """Write the table of each word `name=folder`."""
    RESULTS.mkdir(exist_ok=True)
    for word in words:
        name, _, folder = word.partition("=")
        write_table(RESULTS / f"{name}.csv", COLUMNS, rows(TABLES[name], find_runs([Path(folder)])))
        print("\n".join(sentences(name)))


def rows(pairs: Pairs, runs: Sequence[Run]) -> list[tuple[Any, ...]]:
    """A row of `COLUMNS` for each setting, round and method.

    difference and p are against the reference method, by a paired t-test. holm is p after Holm's
    correction over the whole table.
    """
    by_setting: dict[str, dict[str, dict[int, Run]]] = {}
    for run in runs:
        by_setting.setdefault(pairs.setting(run.config), {}).setdefault(run.label, {})[run.seed] = (
            run
        )
    found: list[tuple[Any, ...]] = []
    for setting, methods in sorted(by_setting.items()):
        for round in pairs.rounds:
            values = {
                name: {seed: _at(run, pairs.metric, round) for seed, run in by_seed.items()}
                for name, by_seed in methods.items()
            }
            for name, by_seed in sorted(values.items()):
                n, difference, p = paired_test(by_seed, values[pairs.against])
                own = [*by_seed.values()]
                found.append(
                    (setting, round, name, n, np.mean(own), standard_deviation(own), difference, p)
                )
    corrected = holm([row[-1] for row in found])
    return [
        (*row[:4], *(f"{number:.6g}" for number in (*row[4:], value)))
        for row, value in zip(found, corrected)
    ]


def _at(run: Run, metric: str, round: int) -> float:
    return float(run.metrics.set_index("round")[metric].loc[round])


def read(name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    return read_table(RESULTS / f"{name}.csv")


def sentences(name: str) -> list[str]:
    """A table in sentences, one for each round and method."""
    pairs = TABLES[name]
    table = read(name)
    found = []
    for round in pairs.rounds:
        for method in sorted({row["method"] for row in table} - {pairs.against}):
            here = [row for row in table if (int(row["round"]), row["method"]) == (round, method)]
            ends = [f"{end(float(row['difference']) for row in here):+.3f}" for end in (min, max)]
            resolved = sum(float(row["holm"]) < LEVEL for row in here)
            what = pairs.metric.replace("_", " ")
            found.append(
                f"after {round} rounds {method}'s {what} minus {pairs.against}'s is {ends[0]} to "
                f"{ends[1]}, significant in {resolved} of {len(here)} settings"
            )
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
