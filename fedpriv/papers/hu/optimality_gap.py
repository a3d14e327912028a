"""The bounds of Hu, Guo, Gong (Theorem 2, Lemma 6) beside measurements, against tau and sigma, on
embedded records."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.papers.hu.theory import Convergence, breast_cancer_risk, gradient_variance, measure
from fedpriv.reports.canvas import grid_and_legend, plain_ticks, plt, save_bounds
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
QUANTITIES = {"f - f*": "Lemma 6", "|grad f|^2": "Theorem 2"}
"""Who bounds each result of `measure`."""
PANELS = (("sigma", "tau", (1, 4)), ("tau", "sigma", (0.01, 0.3)))
"""In each column: the axis, and the setting whose values have lines."""


def draw(folder: Path, profile: str = "quick") -> None:
    """Run and bound every setting; write optimality_gap.csv and figure.png into a folder."""
    iterations, copies = SIZES[profile]
    rows = table(iterations, copies)
    rows.to_csv(folder / "optimality_gap.csv", index=False)

    figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.6), sharey="row", layout="constrained")
    for row, (quantity, theorem) in zip(axes, QUANTITIES.items()):
        for axis, (x, line, values) in zip(row, PANELS):
            here = rows[rows["quantity"] == quantity].assign(x=rows[x], line=rows[line])
            for color, value in zip(("C0", "C1"), values):
                own = here[here["line"] == value]
                look = {"marker": "o", "ms": 4, "capsize": 2, "label": f"{line} = {value:g}"}
                axis.plot(own["x"], own["bound"], "--", color=color)
                axis.plot(own["x"], own["printed"], ":", color=color)
                axis.errorbar(own["x"], own["measured"], own["std"], color=color, **look)
            axis.set(xlabel=x, xscale="log", yscale="log")
            axis.set_title(theorem, fontsize=10)
            if x == "tau":
                plain_ticks(axis, STEPS)
            grid_and_legend(axis, 9)
        row[0].set_ylabel(f"mean of {quantity}")
    save_bounds(
        figure,
        folder / "figure.png",
        bound="bound with the proof's constants (dotted: as printed)",
        measured=f"measured ({copies} copies, +- std)",
        about=f"logistic regression on breast cancer records, {COHORT} of {DEVICES} devices, "
        f"batches of {BATCH}, step {LR}, lambda {STRONG_CONVEXITY}, {iterations} iterations, no "
        "clipping",
    )


def table(iterations: int, copies: int) -> pd.DataFrame:
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
    for steps, noise in product(STEPS, NOISES):
        setting = replace(base, local_steps=steps, noise=noise)
        assert setting.applies
        both = measure(risk, setting, copies, rng=np.random.default_rng(0))
        bounds = (setting.gap_bound, setting.gradient_bound)
        for quantity, measured, bound in zip(QUANTITIES, both, bounds):
            row = {"quantity": quantity, "tau": steps, "sigma": noise}
            row |= {"printed": bound(), "bound": bound(False)}
            rows.append(row | {"measured": measured.mean(), "std": standard_deviation(measured)})
    return pd.DataFrame(rows)
