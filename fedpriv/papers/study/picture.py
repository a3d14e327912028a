"""The study's figure: errors for users, errors for records, and epsilons of each method's noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

from fedpriv.papers.study.methods import METHODS, RECORD, RECORDS_PER_USER, USER
from fedpriv.papers.study.table import (
    REFERENCES,
    StudyRow,
    baselines,
    compare_with_reference,
    epsilons,
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


def draw(rows: Sequence[StudyRow], out: Path, *, title: str) -> None:
    """Draw the study's rows into a file."""
    papers = [one.paper for one in METHODS]
    known = {r.method for r in rows}
    methods = (one for one in METHODS if one.name in known)
    order = sorted(methods, key=lambda one: papers.index(one.paper))
    places = {one.name: -number for number, one in enumerate(order)}
    figure, axes = plt.subplots(
        1, 3, figsize=(12.5, 6.6), sharey=True, width_ratios=(1, 1, 0.75), layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    for axis, unit in zip(axes, (USER, RECORD)):
        _draw_errors(axis, rows, unit, places)
    _draw_epsilons(axes[2], rows, places)
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
    figure.supxlabel("\n".join(wrap(_footnote(rows), 170)), fontsize=7)
    save(figure, out)


def _draw_errors(axis: Axes, rows: Sequence[StudyRow], unit: str, places: dict[str, int]) -> None:
    """Mean and deviation; hollow where there is no significant difference from the reference."""
    known = epsilons(rows)
    most = len(known) - 1
    for number, (epsilon, look) in enumerate(zip(known, LOOKS)):
        shift = 0.22 * (most - 2 * number) / max(1, most)
        for one in compare_with_reference(rows, unit, epsilon):
            resolved = one.row.method == REFERENCES[unit] or one.verdict != "not resolved"
            face = look["color"] if resolved else "white"
            place = places[one.row.method] + shift
            spread = one.row.deviation if len(one.row.errors) > 1 else 0.0
            style = {"ms": 5, "lw": 0.9, "mfc": face, "capsize": 2, **look}
            axis.errorbar(one.row.mean, place, xerr=spread, **style)
        axis.plot([], [], ls="", ms=5, label=f"epsilon {epsilon:g}", **look)
    for free in baselines(rows):
        place = places[free.method]
        axis.errorbar(free.mean, place, xerr=free.deviation, lw=0.9, capsize=2, **BASELINE_LOOK)
    axis.plot([], [], ls="", label="not private", **BASELINE_LOOK)
    axis.set(
        xlabel="test error", title=f"{NAMES[unit]}\nhollow: not resolved from {REFERENCES[unit]}"
    )
    _log_axis(axis, 0.4 * min((r.mean for r in rows if r.mean > 0), default=0.01), 1.0)


def _draw_epsilons(axis: Axes, rows: Sequence[StudyRow], places: dict[str, int]) -> None:
    """At one epsilon of a user: the epsilons of the released model and the server, and the claim.

    The server's is infinite where it sees messages.
    """
    known = epsilons(rows)
    shown = known[len(known) // 2]
    here = [r for r in rows if (r.unit, r.epsilon) == (USER, shown)]
    values = [getattr(r, name) for r in here for name in EPSILON_LOOKS]
    most = 2 * max(value for value in values if math.isfinite(value))
    for name, look in EPSILON_LOOKS.items():
        points = [(getattr(r, name), places[r.method]) for r in here]
        points = [(min(value, most), place) for value, place in points if not math.isnan(value)]
        axis.plot(*zip(*points), ls="", ms=5, **look)
    for r in here:
        if math.isinf(r.server):
            axis.annotate(
                "infinite",
                (most, places[r.method]),
                (-6, 0),
                textcoords="offset points",
                fontsize=7,
                ha="right",
                va="center",
            )
    axis.set(xlabel="epsilon", title=f"what the noise for a user's epsilon {shown:g} keeps")
    _log_axis(axis, 0.8 * min(values), 1.3 * most)


def _log_axis(axis: Axes, low: float, high: float) -> None:
    """A log axis with 1, 2 and 5 of each decade as plain numbers."""
    axis.set(xscale="log", xlim=(low, high))
    ticks = [lead * 10.0**power for power in range(-4, 6) for lead in (1, 2, 5)]
    plain_ticks(axis, [tick for tick in ticks if low <= tick <= high])


def _footnote(rows: Sequence[StudyRow]) -> str:
    seeds = sorted({len(r.seeds) for r in rows})
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    records = sorted({r.records for r in rows})
    kept = f"at most {RECORDS_PER_USER} of a user where a user's epsilon is made of a record's"
    return (
        f"certified against the released model, adjacency replace, delta = {rows[0].delta:g}; "
        f"mean and deviation over {number} seeds, {rows[0].rounds} rounds, {records[0]:,} to "
        f"{records[-1]:,} training records ({kept}); paired t-tests over seeds with Holm's "
        "correction, level 0.05; step size and clip chosen by the training loss on other seeds, "
        "which no epsilon covers; simulation: noise is seeded"
    )
