"""Privacy and utility against the round (Uldp-FL, Figs 4 to 7), from run folders alone.

    fedpriv figure outputs/uldp_fl/fig4/<folder> [more folders] [--out figure.png]

Runs that differ in their seed alone are one line. Left: the metric, mean and standard deviation (n
- 1) over seeds. Right: epsilon on a log axis, what the paper claims dashed, what is certified
solid; a method without any guarantee has no line there and is named instead. Where runs of one
method differ in more than their seed, every setting has a row of panels of its own. The numbers are
written to a CSV file beside the picture.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.errors import ConfigError, FedprivError, require
from fedpriv.reports.canvas import (
    MARKERS,
    Axes,
    Figure,
    Line2D,
    MaxNLocator,
    PlainLog,
    ScaledTranslation,
    plt,
    savable,
)
from fedpriv.reports.finished_runs import Run, find_runs, place, user_epsilons
from fedpriv.reports.groups import Group, grouped, short
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import Line, mean_and_std, summarised
from fedpriv.reports.table_command import Parser
from fedpriv.runs.labels import RELEASED

NAIVE = "ULDP-NAIVE"
ORDER = ("DEFAULT", NAIVE, "ULDP-GROUP", "ULDP-SGD", "ULDP-AVG")
MOST_FACETS = 6
BELOW = 28
"""Points from an axis to its legend: numbers and a name lie between."""
WIDTH, HEIGHT, ENTRY, FEW = 7.0, 3.6, 0.14, 6
"""Inches: two columns of a paper, one row of panels, and what it grows by for each entry of a
legend beyond a few."""
COLUMNS = ("group", "round", "metric", "label", "mean", "sd", "n", "certified", "claimed")


def main(words: list[str]) -> None:
    """Draw what the command line names."""
    parser = Parser(
        "fedpriv figure", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--out",
        type=Path,
        help="a picture or a PDF; privacy_utility.png in the first folder otherwise",
    )
    parser.add_argument(
        "--metric", help="a column of metrics.csv; the data set's main metric otherwise"
    )
    parser.add_argument("--observer", help="whose epsilon; whom the runs are known by otherwise")
    parser.add_argument(
        "--method", help="of accounting (rdp, pld); the smallest certificate otherwise"
    )
    parser.add_argument("--title", default="")
    args = parser.parse_args(words)
    out = args.out or args.folders[0] / "privacy_utility.png"
    require(
        savable(out),
        "--out",
        out,
        "a file that ends in .png, .pdf, .svg or another kind that matplotlib writes",
    )
    runs = find_runs(args.folders)
    try:
        draw(
            runs,
            out,
            metric=args.metric,
            observer=args.observer,
            method=args.method,
            title=args.title,
        )
    except OSError as error:
        raise ConfigError("--out", out, f"a file that can be written ({error.strerror})") from error
    print(out)


@dataclass(frozen=True)
class _Curves:
    """What is drawn of one group as `name`.

    utility: mean and std by round.
    privacy: certified and claimed by round, the largest over seeds.
    """

    group: Group
    name: str
    line: Line
    utility: pd.DataFrame
    privacy: pd.DataFrame
    color: str
    marker: str


def draw(
    runs: list[Run],
    out: Path,
    *,
    metric: str | None = None,
    observer: str | None = None,
    method: str | None = None,
    title: str = "",
    cell: Callable[[Mapping[str, Any]], str] | None = None,
) -> None:
    """Both panels of every setting among `runs`, written to `out`, and the numbers beside it.

    cell: the name of the panels that a configuration belongs in, for figures that know their
        settings.

    Raises FedprivError for runs that do not belong together, and for names that they do not have.
    """
    groups = sorted(grouped(runs), key=lambda group: _rank(group.method))
    lines = summarised(groups, metric=metric, observer=observer, method=method)
    rows = facets(groups) if cell is None else _cells(groups, cell)
    names = _line_names(rows)
    looks = {name: number for number, name in enumerate(dict.fromkeys(names.values()))}
    named = [(line, names[id(line.group)]) for line in lines]
    curves = [_curves(line, name, looks[name], method) for line, name in named]
    figure, axes = plt.subplots(len(rows), 2, layout="constrained", squeeze=False, sharey="col")
    for (setting, members), (left, right) in zip(rows, axes):
        here = [curve for curve in curves if any(curve.group is member for member in members)]
        _utility_panel(left, here)
        _epsilon_panel(right, here, runs[0].delta)
        left.set_title(setting or title or "utility on the test split", fontsize=8)
    if title and any(setting for setting, _ in rows):
        figure.suptitle(title, fontsize=9)
    _finish(figure, lines, out)
    _write(curves, out.with_suffix(".csv"))


def facets(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """Groups by the settings in which those of one method differ, each with its name; one that
    lacks a key belongs to every value of it. Raises FedprivError when there are too many to be
    seen."""
    keys = list(dict.fromkeys(key for group in groups for key in group.settings))
    settings: list[Mapping[str, Any]] = []
    for group in sorted(groups, key=lambda group: -len(group.settings)):
        if not any(_within(group.settings, known) for known in settings):
            settings.append(group.settings)
    settings.sort(
        key=lambda setting: [list(map(str, setting)), [_order(setting.get(key)) for key in keys]]
    )
    if len(settings) > MOST_FACETS:
        raise FedprivError(
            f"{len(settings)} settings are too many for one figure (at most {MOST_FACETS}): runs "
            "differ in "
            f"{', '.join(map(short, keys))}; name fewer folders, or see them all with fedpriv table"
        )
    names = [
        ", ".join(f"{short(key)}={value}" for key, value in setting.items()) for setting in settings
    ]
    return [
        (name, [group for group in groups if _within(group.settings, setting)])
        for name, setting in zip(names, settings)
    ]


def _cells(
    groups: Sequence[Group], cell: Callable[[Mapping[str, Any]], str]
) -> list[tuple[str, list[Group]]]:
    """Groups by the name of their cell; cells in the order of their first runs."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(cell(group.runs[0].config), []).append(group)
    return sorted(
        found.items(), key=lambda named: min(_started(group.runs[0].folder) for group in named[1])
    )


def _started(folder: Path) -> tuple[str, tuple[int, int, str]]:
    return str(folder.parent), place(folder)


def _line_names(rows: Sequence[tuple[str, list[Group]]]) -> dict[int, str]:
    """What each group's line is called: its method, or all of its name beside another group of this
    method."""
    names: dict[int, str] = {}
    for _, members in rows:
        methods = Counter(group.method for group in members)
        names |= {
            id(group): group.method if methods[group.method] == 1 else group.name
            for group in members
        }
    return names


def _within(part: Mapping[str, Any], whole: Mapping[str, Any]) -> bool:
    return all(key in whole and whole[key] == value for key, value in part.items())


def _order(value: Any) -> tuple[float, str]:
    """Numbers by size, then everything else."""
    number = isinstance(value, int | float)
    return (float(value), "") if number else (float("inf"), str(value))


def _curves(line: Line, name: str, look: int, method: str | None) -> _Curves:
    runs = line.group.runs
    tables = [user_epsilons(run.epsilon, line.observer, method).set_index("round") for run in runs]
    privacy = pd.DataFrame(
        {
            kind: pd.concat([table[kind] for table in tables], axis=1, join="inner").max(
                axis=1, skipna=False
            )
            for kind in ("certified", "claimed")
        }
    )
    utility = mean_and_std([run.metrics for run in runs], line.metric)
    return _Curves(
        line.group, name, line, utility, privacy, f"C{look % 10}", MARKERS[look % len(MARKERS)]
    )


def _utility_panel(axis: Axes, curves: Sequence[_Curves]) -> None:
    for curve in curves:
        utility = curve.utility
        n = curve.line.n
        seeds = "1 seed" if n == 1 else f"{n} seeds"
        axis.plot(utility.index, utility["mean"], label=f"{curve.name} ({seeds})", **_look(curve))
        low = utility["mean"] - utility["std"]
        high = utility["mean"] + utility["std"]
        axis.fill_between(utility.index, low, high, color=curve.color, alpha=0.2, lw=0)
    axis.set_xlabel("round", fontsize=8)
    private = all(curve.line.label != RELEASED for curve in curves)
    name = curves[0].line.metric.replace("_", " ") + (" (diagnostic)" if private else "")
    axis.set_ylabel(name, fontsize=8)
    _legend(axis, *axis.get_legend_handles_labels(), ncol=2)
    axis.grid(alpha=0.3)
    _ticks(axis)


def _legend(axis: Axes, handles: Sequence[Any], names: Sequence[str], ncol: int = 1) -> None:
    """Below the axis and what is written there, however low the panel is."""
    below = ScaledTranslation(0, -BELOW / 72, axis.figure.dpi_scale_trans)
    look: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "fontsize": 6.5}
    axis.legend(handles, names, ncol=ncol, bbox_transform=axis.transAxes + below, **look)


def _ticks(axis: Axes) -> None:
    axis.tick_params(which="both", labelsize=7)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _look(curve: _Curves) -> dict[str, Any]:
    every = max(1, len(curve.utility) // 8)
    return {"color": curve.color, "marker": curve.marker, "ms": 3, "markevery": every, "lw": 1.2}


def _epsilon_panel(axis: Axes, curves: Sequence[_Curves], delta: float) -> None:
    """Claimed and certified epsilon of each method; methods with the same curve share one line,
    grey."""
    lines: dict[tuple[str, bytes], tuple[list[_Curves], pd.Series]] = {}
    nothing = []
    for curve in curves:
        for kind in ("certified", "claimed"):
            values = curve.privacy[kind]
            if len(values) and np.isfinite(values).all():
                key = (kind, values.to_numpy().round(9).tobytes())
                lines.setdefault(key, ([], values))[0].append(curve)
            elif kind == "certified":
                nothing.append(curve.name)
    for (kind, _), (owners, values) in lines.items():
        look = {**_look(owners[0]), "ls": {"certified": "-", "claimed": "--"}[kind]}
        look |= {"color": "0.35", "marker": ""} if len(owners) > 1 else {}
        label = f"{kind}: {', '.join(curve.name for curve in owners)}"
        axis.plot(values.index, values, label=label, **look)
    axis.set_xlabel("round", fontsize=8)
    axis.set_ylabel("epsilon", fontsize=8)
    axis.set_yscale("log")
    who = " and ".join(dict.fromkeys(curve.line.observer for curve in curves))
    axis.set_title(f"{who}, delta = {delta:g}\nclaimed dashed, certified solid", fontsize=7.5)
    for axle, only_base in (
        (axis.yaxis.set_major_formatter, True),
        (axis.yaxis.set_minor_formatter, False),
    ):
        axle(PlainLog(labelOnlyBase=only_base))
    handles, names = axis.get_legend_handles_labels()
    if nothing:
        handles.append(Line2D([], [], lw=0))
        names.append(f"nothing certified: {', '.join(nothing)}")
    _legend(axis, handles, names)
    axis.grid(alpha=0.3, which="both")
    _ticks(axis)


def _finish(figure: Figure, lines: Sequence[Line], out: Path) -> None:
    runs = [run for line in lines for run in line.group.runs]
    epochs = {run.config.get("algo", {}).get("local_epochs") for run in runs} - {None}
    facts = [
        _counts({run.records for run in runs} - {None}, "training records"),
        _counts({int(run.metrics["round"].iloc[-1]) for run in runs}, "rounds"),
        _counts(epochs, "local epochs"),
        ", ".join(dict.fromkeys(f"unit {line.unit}, {line.adjacency}" for line in lines)),
        *sorted({_naive(run) for run in runs if run.label == NAIVE}),
    ]
    if any(run.randomness == "simulation" for run in runs):
        facts.append(
            "simulation: noise is seeded, the epsilons are those of the same run with real noise"
        )
    longest = max(len(legend.get_texts()) for axis in figure.axes if (legend := axis.get_legend()))
    rows = len(figure.axes) // 2
    figure.set_size_inches(
        WIDTH, rows * (HEIGHT + ENTRY * max(0, longest - FEW))
    )  # else panels would be low
    figure.supxlabel("\n".join(wrap("; ".join(filter(None, facts)), 130)), fontsize=6)
    figure.savefig(out, dpi=200)
    plt.close(figure)


def _naive(run: Run) -> str:
    """What its noise is made for beside what a user can do."""
    made_for = {"certified": "2CS", "paper": "CS"}[run.config["algo"]["calibration"]]
    return (
        f"{NAIVE}'s noise is for a sensitivity of {made_for}, and a user can move its sum by 2CS "
        "(S silos)"
    )


def _counts(numbers: Collection[Any], what: str) -> str:
    """All of them, ascending, or the ends of many; nothing of none."""
    if not numbers:
        return ""
    few = len(numbers) <= 3
    shown = [f"{number:,}" for number in (sorted(numbers) if few else (min(numbers), max(numbers)))]
    return f"{(' or ' if few else ' to ').join(shown)} {what}"


def _write(curves: Sequence[_Curves], path: Path) -> None:
    """A row a group and round; empty where a round has no such value."""
    rows = []
    for curve in curves:
        both = curve.utility.join(curve.privacy, how="outer")
        for number, row in both.iterrows():
            values = [row["mean"], row["std"], curve.line.n, row["certified"], row["claimed"]]
            rows.append(
                [
                    curve.group.name,
                    number,
                    curve.line.metric,
                    curve.line.label,
                    *("" if v != v else v for v in values),
                ]
            )
    write_table(path, COLUMNS, rows)


def _rank(label: str) -> tuple[int, str]:
    """Known families in the papers' order, then everything else by name."""
    family = next((index for index, name in enumerate(ORDER) if label.startswith(name)), len(ORDER))
    return family, label
