"""Final metric and epsilon of groups of runs, and the best setting at each epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from fedpriv.errors import require
from fedpriv.reports.finished_runs import user_epsilons
from fedpriv.reports.groups import Group
from fedpriv.util.durable_files import replace_file

Item = TypeVar("Item")
NOT_COVERED = "not covered: chosen by the metric after looking at all of them"
"""Why no epsilon is certified of the choice of a best setting."""
UNTOLD = "no test metric (evaluation=none)"
LOWER_IS_BETTER = ("loss", "error", "norm", "heterogeneity", "risk")


@dataclass(frozen=True)
class GroupSummary:
    """One group after its last round.

    group: its runs and settings.
    metric: name of the metric.
    mean: of the metric over seeds.
    sd: its standard deviation over seeds (n - 1); NaN for a single seed.
    n: number of seeds.
    observer: whose epsilons these are.
    unit: what the epsilons protect, such as "user".
    adjacency: between neighbouring data sets.
    certified: largest certified epsilon over seeds.
    claimed: largest claimed epsilon over seeds; NaN where the paper claims nothing.
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
class BestSetting:
    """The best setting of a method at a certified epsilon.

    summary: of the group with this setting.
    among: number of settings compared.
    """

    summary: GroupSummary
    among: int


def summarise(
    groups: Sequence[Group],
    *,
    metric: str | None = None,
    observer: str | None = None,
    method: str | None = None,
) -> list[GroupSummary]:
    """A summary of each group.

    metric: None takes each run's main metric.
    observer: None takes each run's own observer.
    method: of accounting; None takes the smallest epsilon of all methods.

    Raises ConfigError for a metric, an observer or a method that the runs do not have.
    """
    return [
        _summary(group, metric or group.runs[0].status.metric, observer, method) for group in groups
    ]


def _summary(group: Group, metric: str, observer: str | None, method: str | None) -> GroupSummary:
    runs = group.runs
    for run in runs:
        known = [name for name in run.metrics.columns if name != "round"]
        require(metric in known, "--metric", metric, f"one of {', '.join(known)}")
    seen_by = observer or runs[0].status.observer
    last = [user_epsilons(run.epsilon, seen_by, method).iloc[-1] for run in runs]
    finals = group.finals(metric)
    return GroupSummary(
        group=group,
        metric=metric,
        mean=float(finals.mean(skipna=False)),
        sd=standard_deviation(finals),
        n=len(runs),
        observer=seen_by,
        unit=str(last[0]["unit"]),
        adjacency=str(last[0]["adjacency"]),
        certified=max(float(row["certified"]) for row in last),
        claimed=float(np.max([float(row["claimed"]) for row in last])),  # NaN if any is NaN
        # "diagnostic of ..." sorts before "released": one diagnostic makes the summary one.
        label=min(run.status.metric_label(metric) for run in runs),
    )


def curves(summary: GroupSummary, method: str | None = None) -> pd.DataFrame:
    """By round: `mean` and `std` of the metric over seeds, `certified` and `claimed`, which are the
    largest over seeds. A round that some run lacks has no value.

    method: see `summarise`.
    """
    runs = summary.group.runs
    utility = mean_and_std([run.metrics for run in runs], summary.metric)
    tables = [
        user_epsilons(run.epsilon, summary.observer, method).set_index("round") for run in runs
    ]
    for name in ("certified", "claimed"):
        each = pd.concat([table[name] for table in tables], axis=1, join="inner")
        utility = utility.join(each.max(axis=1, skipna=False).rename(name), how="outer")
    return utility


def curve_of(summary: GroupSummary, method: str | None = None) -> pd.DataFrame:
    """The rounds of `curves` that have a finite metric and a finite certified epsilon."""
    curve = curves(summary, method)
    numbers = curve[["mean", "certified"]].replace([math.inf, -math.inf], math.nan)
    return curve.loc[numbers.dropna().index]


def curve_table(summary: GroupSummary, curve: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """A table of numbers: group, round, metric, label, mean, sd and n, then columns of the
    curve."""
    about = {"group": summary.group.name, "metric": summary.metric, "label": summary.label}
    table = curve.rename_axis("round").rename(columns={"std": "sd"}).reset_index()
    table = table.assign(**about, n=summary.n)
    return table[["group", "round", "metric", "label", "mean", "sd", "n", *columns]]


def write_curves(figure: Path, tables: Iterable[pd.DataFrame]) -> None:
    """Write the numbers of a figure's lines beside it, as visits.png.csv beside visits.png: a table
    visits.csv may be its reader's own. A missing value is empty."""
    text = pd.concat(tables).to_csv(index=False, lineterminator="\n")
    replace_file(figure.with_name(f"{figure.name}.csv"), text.encode())


def standard_deviation(values: Sequence[float] | np.ndarray | pd.Series) -> float:
    """Standard deviation (n - 1); NaN for a single value, and if any value is NaN."""
    return float(np.std(np.asarray(values, dtype=float), ddof=1)) if len(values) > 1 else math.nan


def best_by(metric: str, items: Sequence[Item], values: Iterable[float]) -> Item | None:
    """The first item with the best finite value of a metric; None if no value is finite.

    A metric's name says whether lower values are better; a run's main metric is better if higher.
    """
    sign = -1 if any(word in metric for word in LOWER_IS_BETTER) else 1
    finite = [(item, value) for item, value in zip(items, values) if math.isfinite(value)]
    return max(finite, key=lambda pair: sign * pair[1], default=(None, 0.0))[0]


def best_settings(summaries: Sequence[GroupSummary]) -> list[BestSetting]:
    """The setting with the best mean, for each method and certified epsilon (to four digits) with
    several settings.

    Settings with fewer seeds than others are left out: their missing runs may have diverged.
    """
    rivals: dict[tuple[str, str], list[GroupSummary]] = {}
    for summary in summaries:
        place = summary.group.method, f"{summary.certified:.4g}"
        rivals.setdefault(place, []).append(summary)
    found = []
    for alike in rivals.values():
        most = max(summary.n for summary in alike)
        complete = [summary for summary in alike if summary.n == most]
        best = best_by(complete[0].metric, complete, [summary.mean for summary in complete])
        if len(alike) > 1 and best is not None:
            found.append(BestSetting(best, len(alike)))
    return found


def mean_and_std(tables: list[pd.DataFrame], column: str) -> pd.DataFrame:
    """Mean and standard deviation (n - 1; NaN for one run) of a column over runs, by round.

    Rounds that some run lacks are left out.
    """
    joined = pd.concat([table.set_index("round")[column] for table in tables], axis=1).dropna()
    return pd.DataFrame({"mean": joined.mean(axis=1), "std": joined.std(axis=1, ddof=1)})
