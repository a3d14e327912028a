"""The picture of a comparison: every run, and the mean of each method with its interval."""

from __future__ import annotations

import math
from pathlib import Path
from textwrap import wrap

import numpy as np

from fedpriv.comparisons.table import ComparisonTable, Line, stars
from fedpriv.reports.canvas import Figure, Line2D, plt, save

LEVEL = 0.95
WIDTH = 7.0
"""Inches: two columns of a paper."""
HEAD, ROW = 1.7, 0.42
"""Inches for title and axis, and for each method."""


def mean_interval(values: np.ndarray) -> float:
    """Half the width of the t-interval of level `LEVEL` around the mean of values (n,); NaN for a
    single value."""
    from scipy.stats import t

    n = len(values)
    if n < 2:
        return math.nan
    return float(t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))


def draw(table: ComparisonTable, out: Path) -> Figure:
    """Draw into a file. The best method is on top; grey lines join runs with one seed."""
    metric = table.metric
    finals = [line.summary.group.finals(metric) for line in table.lines]
    figure, axis = plt.subplots(
        figsize=(WIDTH, HEAD + ROW * len(table.lines)), layout="constrained"
    )
    places = range(len(table.lines))
    for seed in table.request.seeds:
        axis.plot(
            [own.get(seed, math.nan) for own in finals], places, color="0.85", lw=0.8, zorder=1
        )
    for place, own in enumerate(finals):
        values = own.to_numpy(dtype=float)
        axis.plot(values, [place] * len(values), "o", mfc="none", mec=f"C{place % 10}", ms=5)
        half = mean_interval(values)
        axis.errorbar(
            values.mean(),
            place,
            xerr=half,
            fmt="D",
            color=f"C{place % 10}",
            ms=5,
            capsize=4,
            lw=1.6,
        )
    axis.set_yticks(
        list(places), [f"{line.label}\n{line.setting}".strip() for line in table.lines], fontsize=8
    )
    axis.invert_yaxis()
    axis.margins(y=0.5 / max(1, len(table.lines)))
    axis.set_xlabel(f"{metric.replace('_', ' ')} after the last round", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    right = axis.secondary_yaxis("right")
    right.set_yticks(list(places), [_mark(line, table) for line in table.lines], fontsize=8)
    right.tick_params(length=0)
    handles = [
        Line2D([], [], ls="", marker="o", mfc="none", mec="0.3", ms=5),
        Line2D([], [], ls="-", marker="D", color="0.3", ms=5),
        Line2D([], [], color="0.85"),
    ]
    names = ["a run", f"mean with {LEVEL:.0%} interval", "the same seed"]
    figure.legend(handles, names, loc="outside upper center", ncol=3, fontsize=7.5, frameon=False)
    deltas = " and ".join(f"{delta:g}" for delta in table.report.deltas)
    axis.set_title(f"certified epsilon {table.request.epsilon:g}, delta = {deltas}", fontsize=9)
    notes = "; ".join(_notes(table))
    figure.supxlabel("\n".join(wrap(notes, 125)), fontsize=6.5)
    save(figure, out, dpi=200)
    return figure


def _mark(line: Line, table: ComparisonTable) -> str:
    own = stars(line.holm) or ("" if math.isnan(line.difference) else "n.s.")
    return "reference" if line.name == table.reference else own


def _notes(table: ComparisonTable) -> list[str]:
    protects = dict.fromkeys(
        f"{one.unit} ({one.adjacency}) against the {one.observer}"
        for one in (line.solved for line in table.lines)
        if one
    )
    notes = [f"protected: {' and '.join(protects)}", f"{len(table.request.seeds)} seeds"]
    if table.report.comparisons:
        notes.append(
            f"marks: paired t-test against {table.reference_label} with Holm's correction, "
            "n.s.: no significant difference, * p < 0.05, ** p < 0.01, *** p < 0.001"
        )
    notes += [f"{name}: {why}" for name, why in table.diverged.items()]
    if table.report.simulated:
        notes.append(
            "simulation: noise is seeded, epsilons are those of the same run with real noise"
        )
    return notes
