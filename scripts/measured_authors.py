"""Set Uldp-FL's public program beside ours: `python -m scripts.measured_authors THEIRS OURS`.

THEIRS holds the JSON files that their src/run_simulation.py writes (exp/results), at any depth, and
OURS runs of uldp_fl/fig4 and uldp_fl/fig6 with the same settings. The values of every seed go to
results/authors.csv; docs/papers/authors.md has what was run, and its table is compared by a test.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.reports.finished_runs import find_runs
from fedpriv.reports.summary import standard_deviation

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "results" / "authors.csv"
PAGE = ROOT / "docs" / "papers" / "authors.md"
COLUMNS = ("data", "users", "method", "program", "seed", "round", "metric", "value")
THEIRS, OURS = "authors", "fedpriv"
METRICS = {"heart_disease": "accuracy", "creditcard": "balanced_accuracy"}
CLASSES = {"HeartDisease": "heart_disease", "CreditCard": "creditcard"}
LEVEL = 0.05


def main(words: list[str]) -> None:
    """Write the table and the page."""
    published, *own = (Path(word) for word in words)
    rows = [*theirs(published), *_ours(own)]
    rounds = {row[5] for row in rows if row[3] == OURS}
    table = pd.DataFrame([row for row in sorted(rows) if row[5] in rounds], columns=COLUMNS)
    table.to_csv(TABLE, index=False)
    PAGE.write_text(page())


def page() -> str:
    """The page with the table of the results."""
    pattern = re.compile(r"(<!-- authors -->\n).*?(<!-- /authors -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{table()}\n{match[2]}", PAGE.read_text())


def table() -> str:
    """Means with deviations of both programs, and the difference with a 95 % interval."""
    lines = [
        "| records | method | round | the authors' program | fedpriv | theirs minus ours |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    keys = ["data", "users", "method", "round"]
    for key, found in pd.read_csv(TABLE).groupby(keys, sort=False):
        values = {program: own["value"].tolist() for program, own in found.groupby("program")}
        if len(values) == 2:
            data, users, method, round = key
            lines.append(
                f"| {data}, {users} users | {method} | {round} | {_mean(values[THEIRS])} | "
                f"{_mean(values[OURS])} | {difference(values[THEIRS], values[OURS])} |"
            )
    return "\n".join(lines)


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {standard_deviation(values):.3f} ({len(values)} seeds)"


def difference(first: list[float], second: list[float]) -> str:
    """Welch's interval: the programs share no split, so that seeds are not paired."""
    from scipy.stats import ttest_ind

    mean = float(np.mean(first) - np.mean(second))
    low, high = ttest_ind(first, second, equal_var=False).confidence_interval(1 - LEVEL)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def theirs(folder: Path) -> Iterator[tuple[str, ...]]:
    for file in sorted(folder.rglob("*results.json")):
        known = json.loads(file.read_text())
        args = dict(re.findall(r"(\w+)='?([^,')]*)", known["args"]))
        about = args["dataset_name"], args["n_users"], args["agg_strategy"], THEIRS
        for number, run in enumerate(known["exp"]):
            parts = run["global"]
            tested = (ast.literal_eval(parts) if isinstance(parts, str) else parts)["global_test"]
            values = ast.literal_eval(tested) if isinstance(tested, str) else tested
            for round, value, _ in values:  # they count rounds from 0
                metric = METRICS[args["dataset_name"]]
                yield (*about, str(number), str(round + 1), metric, f"{value:.6g}")


def _ours(folders: Iterable[Path]) -> Iterator[tuple[str, ...]]:
    for run in find_runs([*folders], warn=lambda text: None):
        data = CLASSES[run.config["data"]["_target_"].rpartition(".")[2]]
        users = str(run.config["allocator"]["n_users"])
        value = f"{run.final(METRICS[data]):.6g}"
        about = data, users, run.status.label, OURS
        yield (*about, str(run.seed), str(run.rounds), METRICS[data], value)


if __name__ == "__main__":
    main(sys.argv[1:])
