"""Finished runs, read from their folders. Every report and figure reads runs here."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from fedpriv.errors import FedprivError, require
from fedpriv.runs.status import STATUS, Status
from fedpriv.runs.tables import STATISTICS
from fedpriv.settings.experiment import Experiment, build
from fedpriv.util.printing import say
from fedpriv.util.untrusted_files import TABLE_BYTES, opened, read_plain_values

UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError),
    yaml.YAMLError,
)
"""Errors that a damaged file of a run may cause; those of pandas are ValueErrors."""
EPSILON_COLUMNS = {"round", "observer", "unit", "adjacency", "method", "certified", "claimed"}
EPSILON_TEXTS = frozenset(
    ("observer", "unit", "adjacency", "method", "assumptions", "status", "group")
)


@dataclass(frozen=True)
class Run:
    """The tables and labels of one finished run.

    folder: where its files are.
    status: how it ended, and the labels of its numbers.
    metrics: a row a round, a column a metric.
    epsilon: a row for each round, observer, unit, adjacency and accounting method.
    config: its resolved configuration.
    """

    folder: Path
    status: Status
    metrics: pd.DataFrame
    epsilon: pd.DataFrame
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        return int(self.config.get("seed", 0))

    @property
    def rounds(self) -> int:
        """Number of the last round."""
        return int(self.metrics["round"].iloc[-1])

    def final(self, metric: str) -> float:
        """A metric after the last round."""
        return float(self.metrics[metric].iloc[-1])

    def final_epsilons(self, observer: str) -> tuple[float, float]:
        """(certified, claimed) after the last round; see `user_epsilons`."""
        last = user_epsilons(self.epsilon, observer).iloc[-1]
        return float(last["certified"]), float(last["claimed"])

    def experiment(self) -> Experiment:
        """The components that its configuration describes. Raises ConfigError for classes outside
        fedpriv."""
        return build(self.config, trust_code=False)


def sweep_order(folder: Path) -> tuple[int, int, str]:
    """Sort key for run folders: jobs of a sweep by number, then all other folders."""
    return (0, int(folder.name), "") if folder.name.isdigit() else (1, 0, str(folder))


def run_folders(root: Path) -> list[Path]:
    """The folders of all runs at or below `root`: sweep by sweep, in the order of jobs. What is
    below a run, such as its evaluations, is a part of it."""
    found = []
    for place, below, files in os.walk(root):
        if STATUS in files:
            found.append(Path(place))
            below.clear()
    return sorted(found, key=lambda folder: (folder.parent, sweep_order(folder)))


def print_to_stderr(text: str) -> None:
    say(text, file=sys.stderr)


def find_runs(roots: list[Path], warn: Callable[[str], None] = print_to_stderr) -> list[Run]:
    """Every finished run at or below `roots`, once, sorted by root and folder.

    warn: receives a line for each run that is not finished.

    Raises FedprivError for a root without a finished run, and for a finished run whose files
    cannot be read.
    """
    runs: dict[Path, Run] = {}
    for root in roots:
        below = {folder.resolve(): folder for folder in run_folders(root)}
        for resolved, folder in below.items():
            if resolved not in runs and (run := read_run(folder, warn)):
                runs[resolved] = run
        if not below.keys() & runs.keys():
            raise FedprivError(f"no finished run at or below {root}")
    return list(runs.values())


def read_run(folder: Path, warn: Callable[[str], None] = print_to_stderr) -> Run | None:
    """The run in a folder; None, with a line to `warn`, if it is not finished.

    Raises FedprivError for files that cannot be read.
    """
    with damage_named(folder):
        status = Status.read(folder)
        if status.state != "done":
            warn(f"left out: {folder} ({status.state})")
            return None
        if (folder / STATISTICS).exists():
            warn(f"left out: {folder} (an analysis)")
            return None
        run = _read(folder, status, _table(folder / "metrics.csv"))
        if run.config.get("evaluation") == "none":  # no metric is told
            run.metrics[status.metric] = math.nan
        if not {"round", status.metric} <= set(run.metrics):
            raise ValueError("a table lacks columns")
    return run


def read_evaluation(folder: Path) -> Run | None:
    """The private evaluations in a folder, as a run whose metrics are the scores of each model;
    None if they are not finished. Raises FedprivError for files that cannot be read."""
    with damage_named(folder):
        status = Status.find(folder)
        if status is None or status.state != "done":
            return None
        table = _table(folder / STATISTICS, frozenset(("column", "statistic", "of")))
        scores = table.pivot_table("value", "column", "statistic", aggfunc="last")
        return _read(folder, status, scores)


def _read(folder: Path, status: Status, metrics: pd.DataFrame) -> Run:
    """A finished run with these metrics. Raises what `damage_named` names."""
    epsilon = _table(folder / "epsilon.csv", EPSILON_TEXTS)
    config = read_plain_values(folder / "config.yaml") or {}
    run = Run(folder, status, metrics, epsilon, config)
    sections = (config, *(config.get(name, {}) for name in ("algo", "mechanism", "data")))
    if not all(isinstance(section, dict) for section in sections):
        raise ValueError("config.yaml lacks a mapping where one is expected")
    _ = run.seed  # raises for one that is no number
    if not set(epsilon) >= EPSILON_COLUMNS:
        raise ValueError("a table lacks columns")
    return run


@contextmanager
def damage_named(folder: Path) -> Iterator[None]:
    """Turn errors of a damaged file into one line that names the run."""
    try:
        yield
    except UNREADABLE as error:
        reason = " ".join(str(error).split()) or repr(error)
        raise FedprivError(f"{folder}: its files cannot be read ({reason})") from error


def _table(path: Path, texts: frozenset[str] = frozenset()) -> pd.DataFrame:
    """A table with rows, of which all columns but `texts` are numbers. Raises ValueError."""
    with opened(path, TABLE_BYTES) as file:
        table = pd.read_csv(file)
    odd = [name for name in table if table[name].dtype.kind not in "iufb" and name not in texts]
    if odd or not len(table):
        raise ValueError(f"{path.name}: {f'{odd[0]:.60} has texts' if odd else 'no rows'}")
    return table


def user_epsilons(epsilon: pd.DataFrame, observer: str, method: str | None = None) -> pd.DataFrame:
    """What an observer may learn about a user, or about the only unit in the table.

    observer: name in the table.
    method: name of the accounting method; None takes the smallest epsilon of all methods, each of
        which is an upper bound.

    Returns a row a round with the columns round, unit, adjacency, certified and claimed. With
    several adjacencies or groups of users, epsilons are the largest over them. Raises ConfigError
    for an observer or a method that is not in the table.
    """
    observers = epsilon["observer"].unique()
    require(observer in observers, "--observer", observer, f"one of {', '.join(observers)}")
    seen = epsilon[epsilon["observer"] == observer]
    units = seen["unit"]
    seen = seen[units == ("user" if (units == "user").any() else units.iloc[0])]
    methods = seen["method"].unique()
    if method is not None:
        require(method in methods, "--method", method, f"one of {', '.join(methods)}")
        seen = seen[seen["method"] == method]
    own = seen["group"].fillna("") if "group" in seen else ""  # earlier versions have no groups
    each = seen.assign(group=own).groupby(
        ["round", "unit", "adjacency", "group"], sort=True, as_index=False
    )
    smallest = each.agg({"certified": "min", "claimed": _max})
    each_round: dict[str, Any] = {
        "unit": "first",
        "adjacency": lambda values: "; ".join(values.unique()),
        "certified": _max,
        "claimed": _max,
    }
    return smallest.groupby("round", as_index=False).agg(each_round)


def _max(values: pd.Series) -> float:
    """The largest value; NaN, no claim, if one of them is NaN."""
    return float(values.max(skipna=False))
