"""Finished runs, read from their folders."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.errors import FedprivError, require
from fedpriv.runs.labels import UNKNOWN

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError)
"""What reading a damaged file of a run may raise; pandas' errors are ValueErrors."""


@dataclass(frozen=True)
class Run:
    """One run's tables and the labels of its status file.

    observer: whose epsilon it is known by.
    records: how many train; None in folders of earlier versions.
    metric_labels: the label of each column of its metrics (`fedpriv.runs.labels`); empty in folders
        of earlier versions.
    """

    folder: Path
    label: str
    metric: str
    delta: float
    randomness: str
    metrics: pd.DataFrame
    epsilon: pd.DataFrame
    config: dict[str, Any] = field(default_factory=dict)
    observer: str = RELEASED_MODEL
    records: int | None = None
    metric_labels: Mapping[str, str] = field(default_factory=dict)

    def metric_label(self, metric: str) -> str:
        """What a column of its metrics is made of: `released`, or a diagnostic of something."""
        return self.metric_labels.get(metric, str(UNKNOWN))

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    def final(self, metric: str) -> float:
        """A metric after the last round."""
        return float(self.metrics[metric].iloc[-1])

    def final_epsilons(self, observer: str, method: str | None = None) -> tuple[float, float]:
        """(certified, claimed) after the last round; see `user_epsilons`."""
        last = user_epsilons(self.epsilon, observer, method).iloc[-1]
        return float(last["certified"]), float(last["claimed"])


def place(folder: Path) -> tuple[int, int, str]:
    """Sorts the folders of a sweep's runs in the order of its jobs, others behind them."""
    return (0, int(folder.name), "") if folder.name.isdigit() else (1, 0, str(folder))


def on_stderr(text: str) -> None:
    """Say it to whoever sits before the screen."""
    print(text, file=sys.stderr)


def find_runs(roots: list[Path], say: Callable[[str], None] = on_stderr) -> list[Run]:
    """Every finished run at or below `roots`, once, sorted by root and folder; others are named by
    `say`.

    Raises FedprivError for a root without any, and for a finished run whose files cannot be read.
    """
    runs: dict[Path, Run] = {}
    for root in roots:
        found = False
        for status_file in sorted(root.rglob("status.json")):
            folder = status_file.parent
            if folder.resolve() in runs or (run := read_run(folder, say)) is not None:
                found = True
                runs.setdefault(folder.resolve(), run)  # type: ignore[arg-type]
        if not found:
            raise FedprivError(f"no finished run at or below {root}")
    return list(runs.values())


def read_run(folder: Path, say: Callable[[str], None] = on_stderr) -> Run | None:
    """The run of a folder, or None, with a word to `say`, when it is not finished."""
    try:
        status = json.loads((folder / "status.json").read_text())
        if status["state"] != "done":
            say(f"left out: {folder} ({status['state']})")
            return None
        described = {key: status[key] for key in ("label", "metric", "delta", "randomness")}
        metrics, epsilon = (pd.read_csv(folder / name) for name in ("metrics.csv", "epsilon.csv"))
        config = yaml.load((folder / "config.yaml").read_text(), Loader=_LOADER) or {}
        observer = status.get("observer", RELEASED_MODEL)
        whole = (
            len(metrics)
            and len(epsilon)
            and described["metric"] in metrics
            and isinstance(config, dict)
        )
        if not whole or not {"round", "observer", "unit", "method", "certified", "claimed"} <= set(
            epsilon
        ):
            raise ValueError("a table lacks rows or columns")
    except UNREADABLE as error:
        raise FedprivError(
            f"{folder}: its files cannot be read ({' '.join(str(error).split()) or error!r})"
        ) from error
    records = status.get("records")
    labels = status.get("labels", {}).get("metrics.csv", {})
    return Run(
        folder,
        **described,
        metrics=metrics,
        epsilon=epsilon,
        config=config,
        observer=observer,
        records=records,
        metric_labels=labels,
    )


_LOADER: Any = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # ten times as fast, where PyYAML was built with it


def user_epsilons(epsilon: pd.DataFrame, observer: str, method: str | None = None) -> pd.DataFrame:
    """A row a round, with columns round, unit, adjacency, certified and claimed: what `observer`
    may learn about users, or about the only unit there is.

    method: the accounting method; None: by the smallest of all methods, each of which is an upper
    bound. Where there are several adjacencies, the largest over them. Raises ConfigError for an
    observer or a method that is not there.
    """
    observers = epsilon["observer"].unique()
    require(observer in observers, "--observer", observer, f"one of {', '.join(observers)}")
    seen = epsilon[epsilon["observer"] == observer]
    seen = seen[
        seen["unit"] == ("user" if (seen["unit"] == "user").any() else seen["unit"].iloc[0])
    ]
    methods = seen["method"].unique()
    if method is not None:
        require(method in methods, "--method", method, f"one of {', '.join(methods)}")
        seen = seen[seen["method"] == method]
    each = seen.groupby(["round", "unit", "adjacency"], sort=True, as_index=False)
    least = each.agg({"certified": "min", "claimed": _max})
    together: dict[str, Any] = {
        "unit": "first",
        "adjacency": "; ".join,
        "certified": _max,
        "claimed": _max,
    }
    return least.groupby("round", as_index=False).agg(together)


def _max(values: pd.Series) -> float:
    """The largest; nothing is claimed where one of them is missing."""
    return float(values.max(skipna=False))
