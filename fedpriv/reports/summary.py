"""What groups of runs come to: metric and epsilon after the last round, the best setting at each
epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedpriv.errors import require
from fedpriv.reports.finished_runs import user_epsilons
from fedpriv.reports.groups import Group

NOT_COVERED = "not covered: chosen by the metric after looking at all of them"


@dataclass(frozen=True)
class Line:
    """One group after its last round.

    mean, sd: of the metric over seeds, sd with n - 1 (NaN of a single seed).
    certified, claimed: the largest epsilon of `observer` over seeds, about `unit` under
        `adjacency`; claimed is NaN where the paper claims nothing.
    label: of the metric: `released`, or a diagnostic of something in one of the runs.
    """

    group: Group
    metric: str
    mean: float
    sd: float
    n: int
    observer: str
    unit: str
    adjacency: str
    certified: float
    claimed: float
    label: str


@dataclass(frozen=True)
class Choice:
    """The best setting of a method at a certified epsilon.

    among: how many settings there were.

    cost: the epsilon of the best of them, or that it is not covered.
    """

    line: Line
    among: int
    cost: str


def summarised(
    groups: Sequence[Group],
    *,
    metric: str | None = None,
    observer: str | None = None,
    method: str | None = None,
) -> list[Line]:
    """A line for each group.

    metric: None is each run's own main one.
    observer: None is whom each run is known by.
    method: of accounting; None takes the smallest of all.

    Raises ConfigError for a metric, an observer or a method that the runs do not have.
    """
    return [_line(group, metric or group.runs[0].metric, observer, method) for group in groups]


def _line(group: Group, metric: str, observer: str | None, method: str | None) -> Line:
    runs = group.runs
    for run in runs:
        known = [name for name in run.metrics.columns if name != "round"]
        require(metric in known, "--metric", metric, f"one of {', '.join(known)}")
    who = observer or runs[0].observer
    last = [user_epsilons(run.epsilon, who, method).iloc[-1] for run in runs]
    finals = group.finals(metric)
    return Line(
        group=group,
        metric=metric,
        mean=float(finals.mean(skipna=False)),
        sd=deviation(finals),
        n=len(runs),
        observer=who,
        unit=str(last[0]["unit"]),
        adjacency=str(last[0]["adjacency"]),
        certified=max(float(row["certified"]) for row in last),
        claimed=_largest([float(row["claimed"]) for row in last]),
        # "diagnostic of ..." sorts before "released": one diagnostic makes the line one.
        label=min(run.metric_label(metric) for run in runs),
    )


def deviation(values: Sequence[float] | np.ndarray | pd.Series) -> float:
    """Standard deviation (n - 1; NaN of a single value, and where one of them is)."""
    return float(np.std(np.asarray(values, dtype=float), ddof=1)) if len(values) > 1 else math.nan


def _largest(values: list[float]) -> float:
    """NaN, no claim, if any of them is."""
    return math.nan if any(math.isnan(value) for value in values) else max(values)


LOWER_IS_BETTER = ("loss", "error", "norm", "heterogeneity", "risk")


def lower_is_better(metric: str) -> bool:
    """Whether a smaller value is the better one, by the metric's name; a run's main metric is
    better if higher."""
    return any(word in metric for word in LOWER_IS_BETTER)


def best(lines: Sequence[Line]) -> list[Choice]:
    """For each method and certified epsilon, to four digits, at which it has several settings: the
    one with the best mean. Settings with fewer seeds than others there are left out, since those
    that are missing may have diverged."""
    places: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        places.setdefault((line.group.method, f"{line.certified:.4g}"), []).append(line)
    choices = []
    for rivals in places.values():
        most = max(line.n for line in rivals)
        fit = [line for line in rivals if line.n == most and math.isfinite(line.mean)]
        if len(rivals) > 1 and fit:
            sign = -1 if lower_is_better(fit[0].metric) else 1
            choices.append(
                Choice(max(fit, key=lambda line: sign * line.mean), len(rivals), NOT_COVERED)
            )
    return choices


def mean_and_std(tables: list[pd.DataFrame], column: str) -> pd.DataFrame:
    """Mean and standard deviation (n - 1; NaN of a single run) of `column` over runs, by round;
    rounds that not every run has are left out."""
    joined = pd.concat([table.set_index("round")[column] for table in tables], axis=1).dropna()
    return pd.DataFrame({"mean": joined.mean(axis=1), "std": joined.std(axis=1, ddof=1)})
