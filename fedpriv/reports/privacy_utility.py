"""Metric and epsilon against the round (Uldp-FL, Figs 4 to 7), from run folders alone; or the
metric against epsilon.

    fedpriv figure outputs/uldp_fl/fig4/<folder> [more folders] [--out figure.png]
    fedpriv figure outputs/sweeps/<folder> --x epsilon

Runs that differ only in their seed form one line. Left panel: mean and standard deviation (n - 1)
of the metric over seeds. Right panel: epsilon on a log axis; claimed epsilons are dashed, certified
ones solid. A method without any guarantee has no line there; the legend names it. A panel without a
line is left out. Where runs of one method differ in more than their seed, the key that differs is
the colour. With --x epsilon there is one panel. The numbers go to a CSV file beside the figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.errors import FedprivError, require
from fedpriv.reports import epsilon_curve
from fedpriv.reports.arguments import report_parser
from fedpriv.reports.canvas import (
    MARKERS,
    Axes,
    FontProperties,
    Line2D,
    MaxNLocator,
    ScaledTranslation,
    plot_band,
    plt,
    save,
    supports_suffix,
)
from fedpriv.reports.finished_runs import Run, find_runs
from fedpriv.reports.groups import Group, group_runs
from fedpriv.reports.summary import (
    UNTOLD,
    GroupSummary,
    curve_table,
    curves,
    summarise,
    write_curves,
)
from fedpriv.settings.words import writing
from fedpriv.util.printing import say

NAIVE = "ULDP-NAIVE"
ORDER = ("FedAvg", NAIVE, "ULDP-GROUP", "ULDP-SGD", "ULDP-AVG")
PanelRow = tuple[str, list[Group]]
"""Title of a row of panels, and the groups in it."""
EPSILON_LINES = {"certified": "-", "claimed": "--"}
LEGEND_OFFSET = 28
"""Points from an axis down to its legend: tick labels and the axis label lie between."""
WIDTH = 3.5
"""Inches of a panel: a column of a paper."""
LETTERS = 65
"""Letters of small text below a panel, in one line."""
ROW_HEIGHT = 3.6
"""Inches, with at most `SHORT_LEGEND` legend entries."""
ENTRY_HEIGHT = 0.14
"""Inches for each further legend entry."""
SHORT_LEGEND = 6


def main(words: list[str]) -> None:
    """Draw the figure that the command line names."""
    default = "privacy_utility.png"
    out_help = f"a PNG, PDF or SVG file (default: {default} in the first folder)"
    parser = report_parser("fedpriv figure", __doc__, out=out_help)
    parser.add_argument("--title", default="")
    parser.add_argument("--x", choices=("round", "epsilon"), default="round", help="the x axis")
    args = vars(parser.parse_args(words))
    folders = args.pop("folders")
    against = args.pop("x") == "epsilon"
    out = args.pop("out") or folders[0] / ("epsilon_curve.png" if against else default)
    require(
        supports_suffix(out),
        "--out",
        out,
        "a file that ends in .png, .pdf, .svg or another suffix that matplotlib writes",
    )
    runs = find_runs(folders)
    with writing(out):
        (epsilon_curve.draw if against else draw)(runs, out, **args)
    say(out)


@dataclass(frozen=True)
class GroupCurves:
    """The lines of one group.

    name: in legends.
    summary: the group, its final metric and epsilon.
    curve: of the metric and the epsilons (`curves`).
    color: of its lines.
    marker: of its lines.
    """

    name: str
    summary: GroupSummary
    curve: pd.DataFrame
    color: Any
    marker: str

    @property
    def line_style(self) -> dict[str, Any]:
        every = max(1, len(self.curve) // 8)
        return {"color": self.color, "marker": self.marker, "ms": 3, "markevery": every, "lw": 1.2}

    def finite(self, column: str) -> pd.Series | None:
        """An epsilon by round; None where it does not exist or is not finite."""
        values = self.curve[column].dropna()
        return values if len(values) and np.isfinite(values).all() else None

    @property
    def table(self) -> pd.DataFrame:
        """Its numbers, with the digests of data and code."""
        data, code = self.summary.group.digests
        return curve_table(self.summary, self.curve, list(EPSILON_LINES)).assign(
            data=data, code=code
        )


def draw(
    runs: list[Run],
    out: Path,
    *,
    metric: str | None = None,
    observer: str | None = None,
    method: str | None = None,
    title: str = "",
    row_title: Callable[[Mapping[str, Any]], str] | None = None,
) -> None:
    """Draw the panels into `out`, with a colour for each setting; write the numbers beside it.

    metric, observer, method: see `summarise`.
    title: of the figure.
    row_title: for a figure that knows its settings: from a run's configuration, the title of the
        row of panels that it belongs in, where methods have the colours.

    Raises FedprivError for runs on several data sets, for names that the runs do not have, and for
    runs with neither a metric nor a finite epsilon.
    """
    groups = sorted(group_runs(runs), key=lambda group: _method_order(group.method))
    summaries = summarise(groups, metric=metric, observer=observer, method=method)
    settings = row_title is None and any(group.settings for group in groups)
    looks_of_settings = epsilon_curve.Looks.of(groups) if settings else None
    rows = [("", groups)] if row_title is None else rows_by_title(runs, groups, row_title)
    names = line_names(rows)
    looks = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    lines = []
    for one in summaries:
        name = names[id(one.group)]
        look = (
            _look(looks[name]) if looks_of_settings is None else looks_of_settings.line(one.group)
        )
        lines.append(GroupCurves(name, one, curves(one, method), look["color"], look["marker"]))
    told = not all(group.untold for group in groups)
    bounded = any(curve.finite(column) is not None for curve in lines for column in EPSILON_LINES)
    if not told and not bounded:
        raise FedprivError(f"{runs[0].folder}: neither a metric nor a finite epsilon to draw")
    n_panels = told + bounded
    shape = (len(rows), n_panels)
    figure, axes = plt.subplots(*shape, layout="constrained", squeeze=False, sharey="col")
    for (setting, members), panels in zip(rows, axes):
        here = [curve for curve in lines if any(curve.summary.group is one for one in members)]
        if told:
            _draw_utility(panels[0], here)
            panels[0].set_title(setting or title or "utility on the test split", fontsize=8)
        if bounded:
            _draw_epsilons(panels[-1], here, runs[0].status.delta)
        if looks_of_settings is not None:
            _legends_of_settings(panels, looks_of_settings)
    if title and (not told or any(setting for setting, _ in rows)):
        figure.suptitle(title, fontsize=9)
    about = "; ".join(filter(None, _facts(summaries, told=told, bounded=bounded)))
    figure.supxlabel("\n".join(wrap(about, LETTERS * n_panels)), fontsize=6)
    figure.set_size_inches(WIDTH * n_panels, len(rows) * _height(figure.axes))
    save(figure, out, dpi=200)
    write_curves(out, (one.table for one in lines))


def _look(number: int) -> dict[str, Any]:
    return {"color": f"C{number % 10}", "marker": MARKERS[number % len(MARKERS)]}


def rows_by_title(
    runs: Sequence[Run], groups: Sequence[Group], row_title: Callable[[Mapping[str, Any]], str]
) -> list[PanelRow]:
    """A row for each title, in the order of the runs."""
    rows: dict[str, list[Group]] = {row_title(run.config): [] for run in runs}
    for group in groups:
        rows[row_title(group.runs[0].config)].append(group)
    return list(rows.items())


def line_names(rows: Sequence[PanelRow]) -> dict[int, str]:
    """By the group's id: its method, or its full name beside another group of this method."""
    names: dict[int, str] = {}
    for _, members in rows:
        methods = Counter(group.method for group in members)
        names |= {
            id(group): group.method if methods[group.method] == 1 else group.name
            for group in members
        }
    return names


def _draw_utility(axis: Axes, curves: Sequence[GroupCurves]) -> None:
    for curve in curves:
        n = curve.summary.n
        label = f"{curve.name} ({n} seed{'s' * (n > 1)})"
        plot_band(axis, curve.curve.dropna(subset="mean"), label=label, **curve.line_style)
    _label_axes(axis, epsilon_curve.metric_name([curve.summary for curve in curves]))
    _legend_below(axis, *axis.get_legend_handles_labels(), ncol=2)
    axis.grid(alpha=0.3)


def _draw_epsilons(axis: Axes, curves: Sequence[GroupCurves], delta: float) -> None:
    """Claimed and certified epsilon of each method; equal curves share one grey line."""
    lines: dict[tuple[str, bytes], tuple[list[GroupCurves], pd.Series]] = {}
    uncertified = []
    for curve in curves:
        for column in EPSILON_LINES:
            values = curve.finite(column)
            if values is not None:
                key = (column, values.to_numpy().round(9).tobytes())
                lines.setdefault(key, ([], values))[0].append(curve)
            elif column == "certified":
                uncertified.append(curve.name)
    for (column, _), (owners, values) in lines.items():
        look = owners[0].line_style | ({"marker": ""} if len(owners) > 1 else {})
        if len({curve.color for curve in owners}) > 1:
            look["color"] = "0.35"
        label = f"{column}: {', '.join(curve.name for curve in owners)}"
        axis.plot(values.index, values, label=label, ls=EPSILON_LINES[column], **look)
    _label_axes(axis, "epsilon")
    axis.set_yscale("log")
    observers = " and ".join(dict.fromkeys(curve.summary.observer for curve in curves))
    axis.set_title(f"{observers}, delta = {delta:g}\nclaimed dashed, certified solid", fontsize=7.5)
    handles, names = axis.get_legend_handles_labels()
    if uncertified:
        handles.append(Line2D([], [], lw=0))
        names.append(f"nothing certified: {', '.join(uncertified)}")
    _legend_below(axis, handles, names)
    axis.grid(alpha=0.3, which="both")


def _legends_of_settings(panels: Sequence[Axes], looks: epsilon_curve.Looks) -> None:
    """Colours and markers left; right, if there are two panels, the kinds of lines."""
    _, names = panels[-1].get_legend_handles_labels()
    _legend_below(panels[0], *looks.legend(), ncol=2)
    legend = panels[0].get_legend()
    assert legend is not None
    legend.set_title(looks.about, prop=FontProperties(size=6.5))
    if len(panels) > 1:
        kinds = dict.fromkeys(name.split(":")[0] for name in names)
        shown = [Line2D([], [], color="0.3", ls=EPSILON_LINES[kind]) for kind in kinds]
        _legend_below(panels[-1], shown, list(kinds), ncol=2)


def _label_axes(axis: Axes, y: str) -> None:
    axis.set_xlabel("round", fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(which="both", labelsize=7)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _legend_below(axis: Axes, handles: Sequence[Any], names: Sequence[str], ncol: int = 1) -> None:
    """Put the legend below the axis and its labels, whatever the panel's height."""
    below = ScaledTranslation(0, -LEGEND_OFFSET / 72, axis.figure.dpi_scale_trans)
    look: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "fontsize": 6.5}
    axis.legend(handles, names, ncol=ncol, bbox_transform=axis.transAxes + below, **look)


def _height(panels: Sequence[Axes]) -> float:
    """Inches of a row, with room for the longest legend."""
    legends = filter(None, (axis.get_legend() for axis in panels))
    longest = max(len(legend.get_texts()) for legend in legends)
    return ROW_HEIGHT + ENTRY_HEIGHT * max(0, longest - SHORT_LEGEND)


def _facts(summaries: Sequence[GroupSummary], *, told: bool, bounded: bool) -> list[str]:
    """What was run, for the line below the panels."""
    runs = [run for summary in summaries for run in summary.group.runs]
    epochs = {run.config.get("algo", {}).get("local_epochs") for run in runs} - {None}
    facts = [
        _count({run.status.records for run in runs}, "training records (a diagnostic)"),
        _count({run.rounds for run in runs}, "rounds"),
        _count(epochs, "local epochs"),
        ", ".join(dict.fromkeys(f"unit {one.unit}, {one.adjacency}" for one in summaries)),
        *sorted({_naive_noise(run) for run in runs if run.status.label == NAIVE}),
    ]
    if not bounded:
        facts.append("no epsilon is finite")
    elif any(run.status.randomness == "simulation" for run in runs):
        facts.append(
            "simulation: noise is seeded, the epsilons are those of the same run with real noise"
        )
    return facts if told else [*facts, UNTOLD]


def _naive_noise(run: Run) -> str:
    """The sensitivity that ULDP-NAIVE's noise is made for, beside the true one."""
    calibration = str(run.config["algo"].get("calibration"))
    made_for = {"certified": "2CS", "paper": "CS"}.get(calibration, calibration)
    return (
        f"{NAIVE}'s noise is for a sensitivity of {made_for}, and a user can move its sum by 2CS "
        "(S silos)"
    )


def _count(numbers: Collection[Any], noun: str) -> str:
    """Up to three numbers, or the range of more, before the noun; empty for no number."""
    if not numbers:
        return ""
    few = len(numbers) <= 3
    shown = [f"{number:,}" for number in (sorted(numbers) if few else (min(numbers), max(numbers)))]
    return f"{(' or ' if few else ' to ').join(shown)} {noun}"


def _method_order(label: str) -> tuple[int, str]:
    """Known methods in the papers' order, then all others by name."""
    family = next((index for index, name in enumerate(ORDER) if label.startswith(name)), len(ORDER))
    return family, label
