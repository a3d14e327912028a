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
import pandas as pd

from fedpriv.errors import FedprivError
from fedpriv.reports.canvas import (
    MARKERS,
    Axes,
    Line2D,
    plot_band,
    plt,
    save,
)
from fedpriv.reports.finished_runs import Run
from fedpriv.reports.groups import Group, group_runs, short
from fedpriv.reports.summary import GroupSummary, curve_of, curve_table, summarise, write_curves
from fedpriv.runs.labels import RELEASED

DISTINCT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito, Color Universal Design, 2008."""
MOST_ENTRIES = 7
"""Entries of a legend."""
SIZE = (6.0, 4.2)
"""Inches."""
WIDE = 30
"""Ratio of the largest to the smallest epsilon from which on the axis is logarithmic."""


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
        methods = sorted({group.method for group in groups})
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
    no run has both a metric and a finite epsilon.
    """
    groups = group_runs(runs)
    summaries = summarise(groups, metric=metric, observer=observer, method=method)
    found = [(summary, curve_of(summary, method)) for summary in summaries]
    drawn = [(summary, curve) for summary, curve in found if len(curve)]
    if not drawn:
        raise FedprivError(f"{runs[0].folder}: no run has both a metric and a finite epsilon")
    figure, axis = plt.subplots(figsize=SIZE, layout="constrained")
    looks = Looks.of([summary.group for summary, _ in drawn])
    for summary, curve in drawn:
        every = max(1, len(curve) // 8)
        marks = ((len(curve) - 1) % every, every)  # the last one too
        look = looks.line(summary.group)
        plot_band(axis, curve.set_index("certified"), markevery=marks, **look)
    epsilons = pd.concat([curve["certified"] for _, curve in drawn])
    if epsilons.max() > WIDE * epsilons.min():
        axis.set_xscale("log")
    _label(axis, looks, summaries, runs)
    absent = [summary.group.name for summary, curve in found if not len(curve)]
    facts = [f"mean over {max(one.n for one in summaries)} seeds"] * (summaries[0].n > 1)
    facts += [f"no finite epsilon: {', '.join(absent)}"] if absent else []
    if any(run.status.randomness == "simulation" for run in runs):
        facts.append("simulation: epsilons are those of the same runs with real noise")
    figure.supxlabel("; ".join(facts), fontsize=7)
    axis.set_title(title, fontsize=10)
    save(figure, out, dpi=200)
    write_curves(out, (curve_table(summary, curve, ["certified"]) for summary, curve in drawn))


def _label(
    axis: Axes, looks: Looks, summaries: Sequence[GroupSummary], runs: Sequence[Run]
) -> None:
    observers = " and ".join(dict.fromkeys(one.observer for one in summaries))
    units = " and ".join(dict.fromkeys(one.unit for one in summaries))
    deltas = " and ".join(f"{delta:g}" for delta in sorted({run.status.delta for run in runs}))
    axis.set_xlabel(f"certified epsilon ({observers}, unit {units}, delta = {deltas})", fontsize=9)
    axis.set_ylabel(metric_name(summaries), fontsize=9)
    axis.tick_params(which="both", labelsize=8)
    axis.grid(alpha=0.3)
    handles, names = looks.legend()
    if len(names) > 1:
        axis.legend(handles, names, fontsize=8, title=looks.about, title_fontsize=8)


def metric_name(summaries: Sequence[GroupSummary]) -> str:
    """The metric for an axis, and whether it is a diagnostic everywhere."""
    private = all(one.label != RELEASED for one in summaries)
    return summaries[0].metric.replace("_", " ") + (" (diagnostic)" if private else "")


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
    return -math.inf if None in values else float(values[0])
