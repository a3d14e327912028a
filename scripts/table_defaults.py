"""Defaults for tables at epsilon 2, on twenty tables: python -m scripts.table_defaults --out t.csv

For each table: the main metric of the defaults, of the trivial model, of a fit without privacy, and
the best mean that `--tune` finds among private models of other steps and bounds.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

import fedpriv

CLIPS, STEPS = (0.1, 0.3, 1.0), (0.5, 1.0, 3.0)
"""What tuning tries beside the defaults: bounds, and steps relative to the mean clipped change."""

MAIN = {"classes": "auc", "number": "r2", "survival": "c_index"}


class Kind(NamedTuple):
    """A table.

    problem: classes, number or survival.
    users, columns, silos: their numbers.
    rows: records of a user.
    positives: share of the second class.
    signal: deviation of the linear score.
    """

    problem: str
    users: int
    columns: int
    silos: int = 4
    rows: int = 1
    positives: float = 0.3
    signal: float = 2.0


TABLES = {
    "sepsis": Kind("classes", 4000, 7, positives=0.08),
    "rare": Kind("classes", 5000, 15, positives=0.03),
    "visits": Kind("classes", 600, 8, silos=5, rows=2),
    "small": Kind("classes", 300, 5, silos=2, positives=0.4),
    "wide": Kind("classes", 1000, 40, positives=0.2),
    "silos": Kind("classes", 2000, 10, silos=10, positives=0.25),
    "weak": Kind("classes", 3000, 10, positives=0.15, signal=1.0),
    "many visits": Kind("classes", 800, 12, rows=4, positives=0.1),
    "cost": Kind("number", 4000, 10),
    "length of stay": Kind("number", 1000, 12),
    "wide numbers": Kind("number", 1000, 48),
    "small numbers": Kind("number", 300, 5, silos=2),
    "repeated numbers": Kind("number", 600, 8, silos=5, rows=3),
    "numbers of ten silos": Kind("number", 3000, 15, silos=10),
    "noisy numbers": Kind("number", 2000, 10, signal=1.0),
    "months": Kind("survival", 2000, 20),
    "small survival": Kind("survival", 300, 4, silos=2),
    "survival": Kind("survival", 700, 8),
    "long survival": Kind("survival", 5000, 12),
    "weak survival": Kind("survival", 2500, 10, signal=1.0),
}


def frame_of(kind: Kind, seed: int = 0) -> pd.DataFrame:
    """The table: standard normal columns, every fourth one of two categories."""
    rng = np.random.default_rng(seed)
    n = kind.users * kind.rows
    user = np.repeat(np.arange(kind.users), kind.rows)
    x = rng.normal(size=(n, kind.columns)) + 0.5 * rng.normal(size=(kind.users, 1))[user]
    x[:, 3::4] = x[:, 3::4] > 0
    weights = rng.normal(size=kind.columns)
    score = x @ weights
    score *= kind.signal / score.std()
    frame = pd.DataFrame({f"x{i}": x[:, i] for i in range(kind.columns)})
    for name in frame.columns[3::4]:
        frame[name] = np.where(frame[name] > 0, "yes", "no")
    frame["patient"] = [f"P{one:05d}" for one in user]
    frame["hospital"] = [f"H{one % kind.silos}" for one in user]
    if kind.problem == "classes":
        noisy = score + rng.logistic(size=n)
        frame["label"] = (noisy > np.quantile(noisy, 1 - kind.positives)).astype(int)
    elif kind.problem == "number":
        frame["label"] = 50 + 10 * (score + rng.normal(size=n))
    else:
        time, end = rng.exponential(np.exp(-score / 2)), rng.exponential(2, n)
        frame["label"], frame["months"] = (time <= end).astype(int), 12 * np.minimum(time, end)
    return frame


def run_table(kind: Kind, seed: int, *words: str) -> pd.Series:
    """The row of the main metric in utility.csv of a run at epsilon 2."""
    own = ["data.time=months"] if kind.problem == "survival" else []
    with tempfile.TemporaryDirectory() as folder:
        fedpriv.run(
            *("data=table", "data.label=label", "data.user=patient", "data.silo=hospital"),
            *(*own, "accountant.target=2", "evaluate_every=30", "quiet=true", f"seed={seed}"),
            *words,
            frame=frame_of(kind),
            folder=Path(folder) / "run",
        )
        rows = pd.read_csv(Path(folder) / "run" / "utility.csv")
    return rows[(rows["part"] == "all") & (rows["metric"] == MAIN[kind.problem])].iloc[0]


def table_row(name: str, seeds: int, *, tune: bool) -> dict[str, object]:
    """A row of the results."""
    kind = TABLES[name]
    runs = pd.DataFrame([run_table(kind, seed) for seed in range(seeds)])
    row: dict[str, object] = {"table": name, "metric": runs["metric"].iloc[0]}
    row |= {one: runs[one].mean() for one in ("trivial", "without_privacy", "model")}
    if tune:
        found = {"": row["model"]}
        for clip, step in product(CLIPS, STEPS):
            words = [f"algo.clip={clip}", f"algo.global_lr={step * kind.silos**2:g}"]
            scores = [run_table(kind, seed, *words)["model"] for seed in range(seeds)]
            found[" ".join(words)] = float(np.mean(scores))
        best = max(found, key=lambda one: float(str(found[one])))
        row |= {"tuned": found[best], "by": best}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    given = parser.parse_args()
    rows = []
    for name in given.tables:
        rows.append(table_row(name, given.seeds, tune=given.tune))
        print(rows[-1], flush=True)
        pd.DataFrame(rows).to_csv(given.out, index=False)


if __name__ == "__main__":
    main()
