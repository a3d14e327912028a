"""The bounds of Hu, Guo, Gong (Theorem 2, Lemma 6) beside measurements, against tau and sigma, on
embedded records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.papers.hu.theory import Convergence, breast_cancer_risk, gradient_variance, measure
from fedpriv.reports.canvas import Axes, grid_and_legend, plain_ticks, plt, save_bounds
from fedpriv.reports.number_table import write_records
from fedpriv.reports.summary import standard_deviation

DEVICES = 8
COHORT = 5
STRONG_CONVEXITY = 0.05
LR = 0.2
BATCH = 7
NOISES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
STEPS = (1, 2, 4, 8)
SIZES = {"quick": (400, 10), "paper": (4000, 50)}
"""Iterations and independent copies, by profile."""
QUANTITIES = {"f - f*": (0, "Lemma 6"), "|grad f|^2": (1, "Theorem 2")}
"""Index in the results of `measure`, and who bounds it."""


def draw(folder: Path, profile: str = "quick") -> None:
    """Run and bound every setting; write optimality_gap.csv and figure.png into a folder."""
    iterations, copies = SIZES[profile]
    rows = table(iterations, copies)
    write_records(folder / "optimality_gap.csv", rows)

    figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.6), sharey="row", layout="constrained")
    for line, (quantity, (_, theorem)) in zip(axes, QUANTITIES.items()):
        here = [row for row in rows if row["quantity"] == quantity]
        _draw_panel(line[0], here, x="sigma", line="tau", values=(1, 4))
        _draw_panel(line[1], here, x="tau", line="sigma", values=(0.01, 0.3))
        line[0].set_ylabel(f"mean of {quantity}")
        for axis in line:
            axis.set_title(theorem, fontsize=10)
    save_bounds(
        figure,
        folder / "figure.png",
        bound="bound (with the proof's constants)",
        measured=f"measured ({copies} copies, +- std)",
        about=f"logistic regression on breast cancer records, {COHORT} of {DEVICES} devices, "
        f"batches of {BATCH}, step {LR}, lambda {STRONG_CONVEXITY}, {iterations} iterations, no "
        "clipping",
    )


def table(iterations: int, copies: int) -> list[dict[str, Any]]:
    """A row for each quantity, tau and sigma: the printed bound, the proof's bound, and the
    measured mean and deviation."""
    risk = breast_cancer_risk(DEVICES, STRONG_CONVEXITY)
    d = risk.x.shape[2]
    base = Convergence(
        lr=LR,
        smoothness=risk.smoothness,
        strong_convexity=STRONG_CONVEXITY,
        variance=gradient_variance(risk),
        batch_size=BATCH,
        parameters=d,
        noise=0.0,
        cohort=COHORT,
        local_steps=1,
        iterations=iterations,
        gap=float(risk.value(np.zeros(d))) - risk.minimum()[1],
    )
    rows = []
    for steps in STEPS:
        for noise in NOISES:
            setting = replace(base, local_steps=steps, noise=noise)
            assert setting.applies
            both = measure(risk, setting, copies, rng=np.random.default_rng(0))
            bounds = (setting.gap_bound, setting.gradient_bound)
            for (quantity, (index, _)), bound in zip(QUANTITIES.items(), bounds):
                row = {"quantity": quantity, "tau": steps, "sigma": noise}
                row |= {"printed": bound(), "bound": bound(False)}
                row |= {"measured": both[index].mean(), "std": standard_deviation(both[index])}
                rows.append(row)
    return rows


def _draw_panel(
    axis: Axes, rows: list[dict[str, Any]], *, x: str, line: str, values: tuple[float, ...]
) -> None:
    for color, value in zip(("C0", "C1"), values):
        places, bound, mean, std = (
            [row[column] for row in rows if row[line] == value]
            for column in (x, "bound", "measured", "std")
        )
        axis.plot(places, bound, "--", color=color)
        label = f"{line} = {value:g}"
        axis.errorbar(places, mean, std, marker="o", ms=4, capsize=2, color=color, label=label)
    axis.set(xlabel=x, xscale="log", yscale="log")
    if x == "tau":
        plain_ticks(axis, STEPS)
    grid_and_legend(axis, 9)
