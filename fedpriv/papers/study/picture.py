"""The study's figure: errors for users, errors for records, and epsilons of each method's noise."""

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
from fedpriv.reports.canvas import Axes, plain_ticks, plt, save

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0b559f", "marker": "^"},
    {"color": "#d1601f", "marker": "s"},
    {"color": "#3a3a3a", "marker": "o"},
)
"""By epsilon, ascending. Markers distinguish them in grey."""
NAMES = {USER: "a user's epsilon", RECORD: "a record's epsilon"}


EPSILON_LOOKS: dict[str, dict[str, Any]] = {
    "certified": {"marker": "o", "color": "#3a3a3a", "label": "certified: released model"},
    "server": {
        "marker": "s",
        "color": "#d1601f",
        "mfc": "white",
        "label": "certified: server, plain sums",
    },
    "claimed": {"marker": "x", "color": "#0b559f", "label": "claimed, in the paper's adjacency"},
}
"""By the field of a row."""
BASELINE_LOOK: dict[str, Any] = {"color": "k", "marker": "D", "ms": 4}


def draw(table: pd.DataFrame, out: Path, *, title: str) -> None:
    """Draw the study's table into a file."""
    papers = [one.paper for one in METHODS]
    known = {*table["method"]}
    methods = (one for one in METHODS if one.name in known)
    order = sorted(methods, key=lambda one: papers.index(one.paper))
    places = {one.name: -number for number, one in enumerate(order)}
    figure, axes = plt.subplots(
        1, 3, figsize=(12.5, 6.6), sharey=True, width_ratios=(1, 1, 0.75), layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    for axis, unit in zip(axes, (USER, RECORD)):
        _draw_errors(axis, table, unit, places)
    _draw_epsilons(axes[2], table, places)
    labels = [f"{one.name} ({one.paper})" for one in order]
    axes[0].set_yticks(list(places.values()), labels, fontsize=8)
    for axis in axes:
        axis.title.set_fontsize(9)
        axis.legend(fontsize=7.5, loc="lower right")
        axis.tick_params(axis="x", which="both", labelsize=8)
        axis.grid(alpha=0.25, axis="x", which="both")
        for one, below in pairwise(order):
            if one.paper != below.paper and one.private:
                axis.axhline(places[below.name] + 0.5, color="0.8", lw=0.8)
    axes[1].sharex(axes[0])
    figure.supxlabel("\n".join(wrap(_footnote(table), 170)), fontsize=7)
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
    axis.set(
        xlabel="test error", title=f"{NAMES[unit]}\nhollow: not resolved from {REFERENCES[unit]}"
    )
    _log_axis(axis, 0.4 * table["mean"][table["mean"] > 0].min(), 1.0)


def _draw_epsilons(axis: Axes, table: pd.DataFrame, places: dict[str, int]) -> None:
    """At one epsilon of a user: the epsilons of the released model and the server, and the claim.

    The server's is infinite where it sees messages.
    """
    known = epsilons(table)
    shown = known[len(known) // 2]
    here = table[(table["unit"] == USER) & (table["epsilon"] == shown)]
    at = here["method"].map(places)
    values = here[[*EPSILON_LOOKS]]
    most = 2 * float(values[np.isfinite(values)].max().max())
    for name, look in EPSILON_LOOKS.items():
        axis.plot(here[name].clip(upper=most), at, ls="", ms=5, **look)
    for place in at[np.isinf(here["server"])]:
        axis.annotate(
            "infinite",
            (most, place),
            (-6, 0),
            textcoords="offset points",
            fontsize=7,
            ha="right",
            va="center",
        )
    axis.set(xlabel="epsilon", title=f"what the noise for a user's epsilon {shown:g} keeps")
    _log_axis(axis, 0.8 * float(values.min().min()), 1.3 * most)


def _log_axis(axis: Axes, low: float, high: float) -> None:
    """A log axis with 1, 2 and 5 of each decade as plain numbers."""
    axis.set(xscale="log", xlim=(low, high))
    ticks = [lead * 10.0**power for power in range(-4, 6) for lead in (1, 2, 5)]
    plain_ticks(axis, [tick for tick in ticks if low <= tick <= high])


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
