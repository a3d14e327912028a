"""Metric against certified epsilon: what a smaller epsilon costs, whatever the number of rounds.

Each line is one setting over its rounds, the mean over seeds. Where settings differ in a number,
its values get the colours of a scale; where they differ in something else, colours that
colour-blind readers can tell apart. Methods have markers of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

from fedpriv.errors import FedprivError
from fedpriv.reports.canvas import (
    MARKERS,
    Axes,
    Figure,
    Line2D,
    LogLocator,
    NullFormatter,
    plt,
    save,
)
from fedpriv.reports.finished_runs import Run, user_epsilons
from fedpriv.reports.groups import Group, group_runs, short
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import GroupSummary, mean_and_std, summarise
from fedpriv.runs.labels import RELEASED

DISTINCT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito, Color Universal Design, 2008."""
MOST_ENTRIES = 7
"""Entries of a legend."""
SIZE = (6.0, 4.2)
"""Inches."""
COLUMNS = ("group", "round", "metric", "label", "mean", "sd", "n", "certified")


def curve_of(summary: GroupSummary, method: str | None = None) -> list[tuple[float, float]]:
    """(certified epsilon, mean of the metric) of a group after each evaluated round that has a
    finite epsilon; the epsilon is the largest over seeds."""
    return [(row[-1], row[0]) for row in _points(summary, method)]


def _points(summary: GroupSummary, method: str | None) -> list[tuple[float, float, int, float]]:
    """(mean, deviation, round, epsilon), ascending in rounds."""
    runs = summary.group.runs
    tables = [user_epsilons(run.epsilon, summary.observer, method) for run in runs]
    spent = [dict(zip(table["round"], table["certified"])) for table in tables]
    found = []
    for number, row in mean_and_std([run.metrics for run in runs], summary.metric).iterrows():
        epsilons = [own.get(number, math.inf) for own in spent]
        if math.isfinite(max(epsilons)) and math.isfinite(row["mean"]):
            assert isinstance(number, int)
            found.append((float(row["mean"]), float(row["std"]), number, float(max(epsilons))))
    return found


@dataclass(frozen=True)
class Looks:
    """Colours for settings, markers for methods.

    colors: name of a setting: its colour; in the order of the legend.
    markers: name of a method: its marker.
    about: short names of the keys that differ.
    """

    colors: Mapping[str, Any]
    markers: Mapping[str, str]
    about: str

    @staticmethod
    def of(groups: Sequence[Group]) -> Looks:
        """Looks that tell the groups apart, where there are at most `MOST_ENTRIES` colours or the
        settings are numbers."""
        keys = list(dict.fromkeys(key for group in groups for key in group.settings))
        methods = list(dict.fromkeys(group.method for group in groups))
        values = {_setting(group): [group.settings.get(key) for key in keys] for group in groups}
        if len(values) == 1:  # methods differ alone: they get the colours
            colors: dict[str, Any] = dict(zip(methods, map(_distinct, range(len(methods)))))
            return Looks(colors, _marked(methods), "method")
        numeric = len(keys) == 1 and all(
            isinstance(value, int | float) or value is None for [value] in values.values()
        )
        names = sorted(values, key=lambda name: _order(values[name])) if numeric else list(values)
        scale = matplotlib.colormaps["viridis"]
        colors = {
            name: scale(0.8 * place / max(1, len(names) - 1)) if numeric else _distinct(place)
            for place, name in enumerate(names)
        }
        return Looks(colors, _marked(methods), ", ".join(map(short, keys)))

    def line(self, group: Group) -> dict[str, Any]:
        """Arguments of a group's line."""
        name = group.method if self.about == "method" else _setting(group)
        return {
            "color": self.colors[name],
            "marker": self.markers[group.method],
            "ms": 4,
            "lw": 1.4,
        }

    def legend(self) -> tuple[list[Line2D], list[str]]:
        """At most `MOST_ENTRIES` entries: the settings, evenly chosen if there are more, and the
        methods if there are several."""
        methods = list(self.markers) if len(self.markers) > 1 and self.about != "method" else []
        room = max(2, MOST_ENTRIES - len(methods))
        names = list(self.colors)
        if len(names) > room:
            step = (len(names) - 1) / (room - 1)
            names = [names[round(place * step)] for place in range(room)]
        handles = [Line2D([], [], color=self.colors[name], lw=2.5) for name in names]
        if self.about == "method":
            for name, handle in zip(names, handles):
                handle.set_marker(self.markers[name])
        handles += [
            Line2D([], [], color="0.3", marker=self.markers[name], lw=0) for name in methods
        ]
        return handles, [*names, *methods][: len(handles)]


def draw(
    runs: list[Run],
    out: Path,
    *,
    metric: str | None = None,
    observer: str | None = None,
    method: str | None = None,
    title: str = "",
) -> None:
    """Draw the metric against epsilon into `out`; write the numbers beside it.

    metric, observer, method: see `summarise`.

    Raises FedprivError for runs on several data sets, for names that the runs do not have, and if
    no run has a finite epsilon.
    """
    groups = group_runs(runs)
    summaries = summarise(groups, metric=metric, observer=observer, method=method)
    found = [(summary, _points(summary, method)) for summary in summaries]
    if not any(points for _, points in found):
        raise FedprivError(f"{runs[0].folder}: no run has a finite epsilon to draw against")
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    looks = Looks.of([summary.group for summary, points in found if points])
    for summary, points in found:
        if points:
            _draw_line(axis, points, looks.line(summary.group))
    _finish(figure, axis, looks, found, runs, title)
    save(figure, out, dpi=200)
    write_table(out.with_suffix(".csv"), COLUMNS, _rows(found))


def _draw_line(
    axis: Axes, points: Sequence[tuple[float, float, int, float]], look: dict[str, Any]
) -> None:
    means, deviations, _, epsilons = (list(column) for column in zip(*points))
    every = max(1, len(points) // 8)
    axis.plot(epsilons, means, markevery=((len(points) - 1) % every, every), **look)  # the last too
    if all(math.isfinite(sd) for sd in deviations):
        low = [mean - sd for mean, sd in zip(means, deviations)]
        high = [mean + sd for mean, sd in zip(means, deviations)]
        axis.fill_between(epsilons, low, high, color=look["color"], alpha=0.15, lw=0)


def _finish(
    figure: Figure,
    axis: Axes,
    looks: Looks,
    found: Sequence[tuple[GroupSummary, Any]],
    runs: Sequence[Run],
    title: str,
) -> None:
    summaries = [summary for summary, _ in found]
    ends = [points[-1][-1] for _, points in found if points]
    starts = [points[0][-1] for _, points in found if points]
    if max(ends) > 30 * min(starts):
        axis.set_xscale("log")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
        axis.xaxis.set_minor_formatter(NullFormatter())
    observers = " and ".join(dict.fromkeys(one.observer for one in summaries))
    units = " and ".join(dict.fromkeys(one.unit for one in summaries))
    deltas = " and ".join(f"{delta:g}" for delta in sorted({run.delta for run in runs}))
    axis.set_xlabel(f"certified epsilon ({observers}, unit {units}, delta = {deltas})", fontsize=9)
    private = all(one.label != RELEASED for one in summaries)
    name = summaries[0].metric.replace("_", " ") + (" (diagnostic)" if private else "")
    axis.set_ylabel(name, fontsize=9)
    axis.tick_params(which="both", labelsize=8)
    axis.grid(alpha=0.3)
    handles, names = looks.legend()
    if len(names) > 1:
        axis.legend(handles, names, fontsize=8, title=looks.about, title_fontsize=8)
    absent = [one.group.name for one, points in found if not points]
    facts = [f"mean over {max(one.n for one in summaries)} seeds"] * (summaries[0].n > 1)
    facts += [f"no finite epsilon: {', '.join(absent)}"] if absent else []
    if any(run.randomness == "simulation" for run in runs):
        facts.append("simulation: epsilons are those of the same runs with real noise")
    figure.supxlabel("; ".join(facts), fontsize=7)
    axis.set_title(title, fontsize=10)


def _rows(found: Sequence[tuple[GroupSummary, Any]]) -> list[list[object]]:
    return [
        [
            one.group.name,
            number,
            one.metric,
            one.label,
            mean,
            "" if sd != sd else sd,
            one.n,
            epsilon,
        ]
        for one, points in found
        for mean, sd, number, epsilon in points
    ]


def _setting(group: Group) -> str:
    """The values of the keys that differ; a single one without its key, which titles the legend."""
    values = [f"{short(key)}={value}" for key, value in group.settings.items()]
    alone = len(values) == 1
    return values[0].partition("=")[2] if alone else ", ".join(values) or "default"


def _marked(methods: Sequence[str]) -> dict[str, str]:
    return {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(methods)}


def _distinct(place: int) -> str:
    return DISTINCT[place % len(DISTINCT)]


def _order(values: Sequence[Any]) -> float:
    [value] = values
    return -math.inf if value is None else float(value)
