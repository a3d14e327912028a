"""The study's figure: a column for each data set, errors for users above errors for records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedpriv.papers.study.methods import METHODS, RECORD, USER
from fedpriv.papers.study.table import (
    REFERENCES,
    baselines,
    compare_with_reference,
    epsilons,
    rows,
)
from fedpriv.reports.canvas import Axes, plain_ticks, plt, save

WIDTH = 6.9
"""Inches, of a paper's two columns."""
WORST = 0.8
TICKS = (0.05, 0.1, 0.2, 0.3, 0.5)
COLOURS = {"better": "#2a7f3f", "worse": "#b5481d", "not resolved": "#3a3a3a"}
MARKS = {"better": "^", "worse": "v", "not resolved": "o"}


def draw(tables: Mapping[str, pd.DataFrame], out: Path) -> None:
    """Draw studies at one epsilon into a file.

    tables: of the studies, by the titles of their columns.
    """
    [epsilon] = epsilons(pd.concat(tables.values()))
    found = {
        (unit, data): compare_with_reference(table, unit, epsilon)
        for unit in (USER, RECORD)
        for data, table in tables.items()
    }
    known = {unit: _ordered(found, unit) for unit in (USER, RECORD)}
    figure, axes = plt.subplots(
        2,
        len(tables),
        figsize=(WIDTH, 7.6),
        sharex="col",
        sharey="row",
        layout="constrained",
        squeeze=False,
        height_ratios=[len(names) for names in known.values()],
    )
    for (unit, data), axis in zip(found, axes.flat):
        _draw_errors(axis, found[unit, data], tables[data], known[unit], REFERENCES[unit])
    for axis, data in zip(axes[0], tables):
        axis.set_title(data, fontsize=8)
    for axis, unit in zip(axes[:, 0], known):
        axis.set_ylabel(f"a {unit}'s epsilon {epsilon:g}", fontsize=8)
    figure.supxlabel(
        "test error: mean and deviation over seeds; dashed: FedAvg without privacy\n"
        "triangles: significantly better (up) or worse (down) than the diamond; circles: neither",
        fontsize=7,
    )
    save(figure, out, dpi=200)


def _ordered(found: Mapping[tuple[str, str], pd.DataFrame], unit: str) -> list[str]:
    """The methods that protect a unit, in the order of `METHODS`."""
    there = {name for (own, _), table in found.items() if own == unit for name in table["method"]}
    return [one.name for one in METHODS if one.name in there]


def _draw_errors(
    axis: Axes, found: pd.DataFrame, table: pd.DataFrame, names: list[str], reference: str
) -> None:
    """Mean and deviation of every method, and a line for FedAvg; nothing without methods."""
    if found.empty:
        axis.axis("off")
        return
    axis.set_yticks(range(len(names)), names, fontsize=6.5)
    axis.set_ylim(len(names) - 0.5, -0.5)
    for one in rows(found):
        mark = "D" if one.method == reference else MARKS[one.verdict]
        style: dict[str, Any] = {"color": COLOURS[one.verdict], "marker": mark}
        place = names.index(one.method)
        axis.errorbar(one.mean, place, xerr=one.deviation, ms=3.5, lw=0.8, capsize=1.5, **style)
    axis.set_xscale("log")
    plain_ticks(axis, TICKS)
    for free in rows(baselines(table)):
        if free.method == "FedAvg":
            axis.axvline(free.mean, color="k", ls="--", lw=0.7)
            axis.set_xlim(0.7 * free.mean, WORST)
    axis.tick_params(axis="x", labelsize=6.5)
    axis.grid(alpha=0.25, axis="both", lw=0.5)
