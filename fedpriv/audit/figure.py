"""The picture of an audit: what an attack proves and estimates, beside certificates and claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.audit.audit import CONFIDENCE, AuditRow
from fedpriv.reports.canvas import Axes, Figure, plt, save

PROVEN = "0.75"
"""Grey of the bars."""
LOOKS = {
    "certified": ("o", "#0072b2", "certified: at most"),
    "claimed": ("X", "#d55e00", "claimed by the paper"),
    "estimate": ("^", "#000000", f"estimate, with its {CONFIDENCE:.0%} interval"),
}
"""Marker, colour and name of each epsilon; colours of Okabe and Ito, Color Universal Design."""


def draw(rows: Sequence[AuditRow], path: Path) -> Figure:
    """Draw audited bounds as bars, certificates and claims as points, and estimates as points with
    their intervals."""
    figure, axis = plt.subplots(figsize=(8.5, 1.6 + 0.5 * len(rows)), layout="constrained")
    audited = [row.bound.audited for row in rows]
    proven = f"proven by the attack: at least ({CONFIDENCE:.0%})"
    axis.barh(range(len(rows)), audited, height=0.55, color=PROVEN, label=proven)
    _intervals(axis, rows)
    for name, (marker, color, label) in LOOKS.items():
        points = [(getattr(row, name), place) for place, row in enumerate(rows)]
        finite = [(x, y) for x, y in points if x is not None and math.isfinite(x)]
        if finite:
            xs, ys = zip(*finite)
            look: dict[str, Any] = {"color": color, "edgecolors": "white", "linewidths": 0.6}
            axis.scatter(xs, ys, s=48, marker=marker, label=label, zorder=4, **look)
    labels = [f"{row.algorithm}, T={row.round}\n{row.observer}, {row.protects}" for row in rows]
    axis.set_yticks(range(len(rows)), labels, fontsize=8)
    axis.invert_yaxis()
    axis.set(xlabel="epsilon", xlim=(0, None))
    axis.grid(alpha=0.3, axis="x")
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside upper center", ncol=2, fontsize=8.5
    )
    save(figure, path)
    return figure


def _intervals(axis: Axes, rows: Sequence[AuditRow]) -> None:
    """A line from the low to the high end of each estimate's interval."""
    for place, row in enumerate(rows):
        ends = np.array([row.estimate_low, row.estimate_high], dtype=float)  # NaN for None
        if np.isfinite(ends).all():
            axis.plot(ends, [place, place], color="black", lw=1.6, marker="|", ms=9, zorder=3)
