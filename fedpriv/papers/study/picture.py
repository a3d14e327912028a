"""The study's figure: errors for users and errors for records, at each epsilon."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.papers.study.methods import METHODS, RECORD, RECORDS_PER_USER, USER
from fedpriv.papers.study.table import (
    REFERENCES,
    baselines,
    compare_with_reference,
    epsilons,
    rows,
)
from fedpriv.reports.canvas import Axes, plt, save

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0b559f", "marker": "^"},
    {"color": "#d1601f", "marker": "s"},
    {"color": "#3a3a3a", "marker": "o"},
)
"""By epsilon, ascending. Markers distinguish them in grey."""
NAMES = {USER: "a user's epsilon", RECORD: "a record's epsilon"}
BASELINE_LOOK: dict[str, Any] = {"color": "k", "marker": "D", "ms": 4}


def draw(table: pd.DataFrame, out: Path, *, title: str) -> None:
    """Draw the study's table into a file."""
    papers = [one.paper for one in METHODS]
    known = {*table["method"]}
    methods = (one for one in METHODS if one.name in known)
    order = sorted(methods, key=lambda one: papers.index(one.paper))
    places = {one.name: -number for number, one in enumerate(order)}
    figure, axes = plt.subplots(
        1, 2, figsize=(10, 6.6), sharex=True, sharey=True, layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    labels = [f"{one.name} ({one.paper})" for one in order]
    axes[0].set_yticks(list(places.values()), labels, fontsize=8)
    for axis, unit in zip(axes, (USER, RECORD)):
        _draw_errors(axis, table, unit, places)
        axis.legend(fontsize=7.5, loc="lower right")
        axis.tick_params(axis="x", which="both", labelsize=8)
        axis.grid(alpha=0.25, axis="x", which="both")
        for one, below in pairwise(order):
            if one.paper != below.paper and one.private:
                axis.axhline(places[below.name] + 0.5, color="0.8", lw=0.8)
    figure.supxlabel("\n".join(wrap(_footnote(table), 140)), fontsize=7)
    save(figure, out)


def _draw_errors(axis: Axes, table: pd.DataFrame, unit: str, places: dict[str, int]) -> None:
    """Mean and deviation; hollow where there is no significant difference from the reference."""
    known = epsilons(table)
    most = len(known) - 1
    for number, (epsilon, look) in enumerate(zip(known, LOOKS)):
        shift = 0.22 * (most - 2 * number) / max(1, most)
        for one in rows(compare_with_reference(table, unit, epsilon)):
            resolved = one.method == REFERENCES[unit] or one.verdict != "not resolved"
            style = {"ms": 5, "lw": 0.9, "mfc": look["color"] if resolved else "white", **look}
            spread = np.nan_to_num(one.deviation)
            axis.errorbar(one.mean, places[one.method] + shift, xerr=spread, capsize=2, **style)
        axis.plot([], [], ls="", ms=5, label=f"epsilon {epsilon:g}", **look)
    for free in rows(baselines(table)):
        place = places[free.method]
        axis.errorbar(free.mean, place, xerr=free.deviation, lw=0.9, capsize=2, **BASELINE_LOOK)
    axis.plot([], [], ls="", label="not private", **BASELINE_LOOK)
    axis.set(xlabel="test error", xscale="log")
    axis.set_title(f"{NAMES[unit]}\nhollow: not resolved from {REFERENCES[unit]}", fontsize=9)


def _footnote(table: pd.DataFrame) -> str:
    seeds = table["seeds"].map(len)
    number = " to ".join(dict.fromkeys(f"{end}" for end in (seeds.min(), seeds.max())))
    first = table.iloc[0]
    records = f"{table['records'].min():,} to {table['records'].max():,}"
    kept = f"at most {RECORDS_PER_USER} of a user where a user's epsilon is made of a record's"
    return (
        f"certified against the released model, adjacency replace, delta = {first['delta']:g}; "
        f"mean and deviation over {number} seeds, {first['rounds']} rounds, {records} training "
        f"records ({kept}); paired t-tests over seeds with Holm's "
        "correction, level 0.05; step size and clip chosen by the training loss on other seeds, "
        "which no epsilon covers; simulation: noise is seeded"
    )
