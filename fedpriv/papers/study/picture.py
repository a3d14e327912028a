"""The study's picture: errors for users, errors for records, and what each method's noise is
certified and claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import Any

from fedpriv.papers.study.methods import METHODS, RECORD, RECORDS_PER_USER, USER
from fedpriv.papers.study.table import REFERENCES, Row, compared, epsilons, yardsticks
from fedpriv.reports.canvas import Axes, plt

LOOKS: tuple[dict[str, Any], ...] = (
    {"color": "#0b559f", "marker": "^"},
    {"color": "#d1601f", "marker": "s"},
    {"color": "#3a3a3a", "marker": "o"},
)
"""By epsilon, ascending; markers tell them apart in grey."""
NAMES = {USER: "a user's epsilon", RECORD: "a record's epsilon"}


def picture(rows: Sequence[Row], out: Path, *, title: str) -> None:
    """Draw them into a file."""
    papers = [one.paper for one in METHODS]
    known = {r.method for r in rows}
    order = sorted(
        (one for one in METHODS if one.name in known), key=lambda one: papers.index(one.paper)
    )
    places = {one.name: -number for number, one in enumerate(order)}
    figure, axes = plt.subplots(
        1, 3, figsize=(12.5, 6.6), sharey=True, width_ratios=(1, 1, 0.75), layout="constrained"
    )
    figure.suptitle(title, fontsize=11)
    for axis, unit in zip(axes, (USER, RECORD)):
        _errors(axis, rows, unit, places)
    _costs(axes[2], rows, places)
    axes[0].set_yticks(
        list(places.values()), [f"{one.name} ({one.paper})" for one in order], fontsize=8
    )
    for axis in axes:
        axis.tick_params(axis="x", which="both", labelsize=8)
        axis.grid(alpha=0.25, axis="x", which="both")
        for one, below in pairwise(order):
            if one.paper != below.paper and one.private:
                axis.axhline(places[below.name] + 0.5, color="0.8", lw=0.8)
    axes[1].sharex(axes[0])
    figure.supxlabel("\n".join(wrap(_small_print(rows), 170)), fontsize=7)
    figure.savefig(out, dpi=150)
    plt.close(figure)


def _errors(axis: Axes, rows: Sequence[Row], unit: str, places: dict[str, int]) -> None:
    """Mean and deviation; hollow where the difference from the reference is not beyond chance."""
    known = epsilons(rows)
    shifts = [
        0.22 * (len(known) - 1 - 2 * number) / max(1, len(known) - 1)
        for number in range(len(known))
    ]
    for epsilon, shift, look in zip(known, shifts, LOOKS):
        for one in compared(rows, unit, epsilon):
            resolved = one.row.method == REFERENCES[unit] or one.verdict != "not resolved"
            face = look["color"] if resolved else "white"
            place = places[one.row.method] + shift
            spread = one.row.deviation if len(one.row.errors) > 1 else 0.0
            axis.errorbar(
                one.row.mean, place, xerr=spread, ms=5, lw=0.9, mfc=face, capsize=2, **look
            )
        axis.plot([], [], ls="", ms=5, label=f"epsilon {epsilon:g}", **look)
    for free in yardsticks(rows):
        axis.errorbar(
            free.mean,
            places[free.method],
            xerr=free.deviation,
            color="k",
            marker="D",
            ms=4,
            lw=0.9,
            capsize=2,
        )
    axis.plot([], [], ls="", color="k", marker="D", ms=4, label="not private")
    axis.set(
        xlabel="test error", title=f"{NAMES[unit]}\nhollow: not resolved from {REFERENCES[unit]}"
    )
    axis.title.set_fontsize(9)
    _log(axis, 0.4 * min((r.mean for r in rows if r.mean > 0), default=0.01), 1.0)
    axis.legend(fontsize=7.5, loc="lower right")


def _costs(axis: Axes, rows: Sequence[Row], places: dict[str, int]) -> None:
    """At one epsilon of a user: the released model's, the server's where it sees messages, and the
    paper's word."""
    known = epsilons(rows)
    shown = known[len(known) // 2]
    kinds: dict[str, dict[str, Any]] = {
        "certified": {"marker": "o", "color": "#3a3a3a", "label": "certified: released model"},
        "server": {
            "marker": "s",
            "color": "#d1601f",
            "mfc": "white",
            "label": "certified: server, plain sums",
        },
        "claimed": {
            "marker": "x",
            "color": "#0b559f",
            "label": "claimed, in the paper's adjacency",
        },
    }
    finite = [
        getattr(r, kind) for r in rows if (r.unit, r.epsilon) == (USER, shown) for kind in kinds
    ]
    most = 2 * max(value for value in finite if math.isfinite(value))
    for kind, look in kinds.items():
        here = [
            (getattr(r, kind), places[r.method])
            for r in rows
            if (r.unit, r.epsilon) == (USER, shown)
        ]
        axis.plot(
            *zip(*((min(x, most), y) for x, y in here if not math.isnan(x))), ls="", ms=5, **look
        )
    for r in rows:
        if (r.unit, r.epsilon) == (USER, shown) and math.isinf(r.server):
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
    axis.title.set_fontsize(9)
    _log(axis, 0.8 * min(finite), 1.3 * most)
    axis.legend(fontsize=7.5, loc="lower right")


def _log(axis: Axes, low: float, high: float) -> None:
    """A log axis with 1, 2 and 5 of each decade as plain numbers."""
    axis.set(xscale="log", xlim=(low, high))
    ticks = [lead * 10.0**power for power in range(-4, 6) for lead in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    axis.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axis.minorticks_off()


def _small_print(rows: Sequence[Row]) -> str:
    seeds = sorted({len(r.seeds) for r in rows})
    number = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    records = sorted({r.records for r in rows})
    kept = f"at most {RECORDS_PER_USER} of a user where a user's epsilon is made of a record's"
    return (
        f"certified against the released model, adjacency replace, delta = {rows[0].delta:g}; "
        "mean and deviation over "
        f"{number} seeds, {rows[0].rounds} rounds, {records[0]:,} to {records[-1]:,} training "
        f"records ({kept}); paired "
        "t-tests over seeds with Holm's correction, level 0.05; step size and clip chosen by the "
        "training loss on "
        "other seeds, which no epsilon covers; simulation: noise is seeded"
    )
