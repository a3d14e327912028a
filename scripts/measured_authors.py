"""Set Uldp-FL's public program beside ours: `python -m scripts.measured_authors THEIRS OURS`.

THEIRS holds the JSON files that their src/run_simulation.py writes (exp/results), at any depth, and
OURS runs of uldp_fl/fig4 and uldp_fl/fig6 with the same settings. The values of every seed go to
results/authors.csv, where other seeds, methods and records stay; docs/papers/authors.md has what
was run, and its table is compared by a test.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

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
BASELINE = "ULDP-SGD"
LEVEL = 0.05


def main(words: list[str]) -> None:
    """Write the table and the page."""
    published, *own = (Path(word) for word in words)
    rows = [*theirs(published), *_ours(own)]
    rounds = {row[5] for row in rows if row[3] == OURS}
    new = pd.DataFrame([row for row in rows if row[5] in rounds], columns=COLUMNS)
    known = pd.concat([pd.read_csv(TABLE, dtype=str), new]).astype({"seed": int})
    key = [*COLUMNS[:6]]
    known.drop_duplicates(key, keep="last").sort_values(key).to_csv(TABLE, index=False)
    PAGE.write_text(page())


def page() -> str:
    """The page with the table of the results."""
    pattern = re.compile(r"(<!-- authors -->\n).*?(<!-- /authors -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{table()}\n{match[2]}", PAGE.read_text())


def table() -> str:
    """Means with deviations of both programs, their difference, and how far each method leads
    ULDP-SGD in its own program, where methods share the splits and users of a seed; 95 % intervals.
    """
    lines = [
        "| records | method | round | the authors' program | fedpriv | theirs minus ours |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (data, users, round), found in pd.read_csv(TABLE).groupby(["data", "users", "round"]):
        runs = found.pivot(index="seed", columns=["method", "program"], values="value")
        methods = {name: runs[name] for name in sorted({*found["method"]})}
        shown = {name: own for name, own in methods.items() if {THEIRS, OURS} <= {*own}}
        leads = {
            f"{name} minus {BASELINE}": own - shown[BASELINE]
            for name, own in shown.items()
            if name != BASELINE
        }
        for written, rows in ((_mean, shown), (_lead, leads)):
            for name, own in rows.items():
                first, second = (own[program].dropna() for program in (THEIRS, OURS))
                lines.append(
                    f"| {data}, {users} users | {name} | {round} | {written(first)} | "
                    f"{written(second)} | {difference(first, second)} |"
                )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {standard_deviation(values):.3f} ({len(values)} seeds)"


def _lead(values: Sequence[float]) -> str:
    """Mean of paired differences, with the t-interval."""
    from scipy.stats import ttest_1samp

    return _with_interval(float(np.mean(values)), ttest_1samp(values, 0))


def difference(first: Sequence[float], second: Sequence[float]) -> str:
    """Welch's interval: the programs share no split, so that seeds are not paired."""
    from scipy.stats import ttest_ind

    mean = float(np.mean(first) - np.mean(second))
    return _with_interval(mean, ttest_ind(first, second, equal_var=False))


def _with_interval(mean: float, test: Any) -> str:
    low, high = test.confidence_interval(1 - LEVEL)
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
