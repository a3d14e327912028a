"""Finished runs, read from their folders for plotting."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedpriv.errors import FedprivError


@dataclass(frozen=True)
class Run:
    """One run's tables and the labels of its status file."""

    folder: Path
    label: str
    metric: str
    delta: float
    randomness: str
    metrics: pd.DataFrame
    epsilon: pd.DataFrame
    config: dict[str, Any] = field(default_factory=dict)

    def final_epsilons(self, observer: str, method: str) -> tuple[float, float]:
        """(certified, claimed) after the last round; see `user_epsilons`."""
        last = user_epsilons(self.epsilon, observer, method).iloc[-1]
        return float(last["certified"]), float(last["claimed"])


def find_runs(roots: list[Path]) -> list[Run]:
    """Every finished run at or below `roots`, sorted by folder. Raises FedprivError when there is none."""
    runs = []
    for root in roots:
        for status_file in sorted(root.rglob("status.json")):
            status = json.loads(status_file.read_text())
            folder = status_file.parent
            if status["state"] != "done":
                print(f"left out: {folder} ({status['state']})", file=sys.stderr)
                continue
            described = {key: status[key] for key in ("label", "metric", "delta", "randomness")}
            metrics, epsilon = (pd.read_csv(folder / name) for name in ("metrics.csv", "epsilon.csv"))
            config = yaml.safe_load((folder / "config.yaml").read_text()) or {}
            runs.append(Run(folder, **described, metrics=metrics, epsilon=epsilon, config=config))
    if not runs:
        raise FedprivError(f"no finished run at or below {', '.join(map(str, roots))}")
    return runs


def mean_and_std(tables: list[pd.DataFrame], column: str) -> pd.DataFrame:
    """Mean and standard deviation of `column` over runs, by round; rounds that not every run has are left out."""
    joined = pd.concat([table.set_index("round")[column] for table in tables], axis=1).dropna()
    return pd.DataFrame({"mean": joined.mean(axis=1), "std": joined.std(axis=1, ddof=0)})


def user_epsilons(epsilon: pd.DataFrame, observer: str, method: str) -> pd.DataFrame:
    """The rows of one observer about users (or the only unit there is), by `method` if it was used."""
    seen = epsilon[epsilon["observer"] == observer]
    seen = seen[seen["unit"] == ("user" if (seen["unit"] == "user").any() else seen["unit"].iloc[0])]
    return seen[seen["method"] == (method if (seen["method"] == method).any() else seen["method"].iloc[0])]
