"""Theorem 2 and Lemma 6 of Hu, Guo, Gong beside what they bound, against tau and sigma, on embedded
records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.papers.hu.theory import Convergence, breast_cancer_risk, measured
from fedpriv.reports.canvas import Axes, plt, save_bounds
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import deviation

DEVICES = 8
COHORT = 5
STRONG_CONVEXITY = 0.05
LR = 0.2
BATCH = 7
NOISES = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0)
STEPS = (1, 2, 4, 8)
SIZES = {"quick": (400, 10), "paper": (4000, 50)}
"""Iterations and copies of a profile."""
QUANTITIES = {"f - f*": (0, "Lemma 6"), "|grad f|^2": (1, "Theorem 2")}


def draw(folder: Path, profile: str = "quick") -> Path:
    """Run and bound every setting, write optimality_gap.csv and figure.png into `folder`; returns
    the picture."""
    iterations, copies = SIZES[profile]
    rows = table(iterations, copies)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "optimality_gap.csv", list(rows[0]), (row.values() for row in rows))

    figure, axes = plt.subplots(2, 2, figsize=(9.5, 6.6), sharey="row", layout="constrained")
    for line, (quantity, (_, theorem)) in zip(axes, QUANTITIES.items()):
        here = [row for row in rows if row["quantity"] == quantity]
        _panel(line[0], here, x="sigma", line="tau", values=(1, 4))
        _panel(line[1], here, x="tau", line="sigma", values=(0.01, 0.3))
        line[0].set_ylabel(f"mean of {quantity}")
        for axis in line:
            axis.set_title(theorem, fontsize=10)
    return save_bounds(
        figure,
        folder / "figure.png",
        bound="bound (with the proof's constants)",
        measured=f"measured ({copies} copies, +- std)",
        about=f"logistic regression on breast cancer records, {COHORT} of {DEVICES} devices, "
        f"batches of {BATCH}, "
        f"step {LR}, lambda {STRONG_CONVEXITY}, {iterations} iterations, no clipping",
    )


def table(iterations: int, copies: int) -> list[dict[str, Any]]:
    """A row for each quantity, tau and sigma: printed bound, the proof's bound, measured mean and
    deviation."""
    risk = breast_cancer_risk(DEVICES, STRONG_CONVEXITY)
    gap = float(risk.value(np.zeros(risk.x.shape[2]))) - risk.minimum()[1]
    base = Convergence(
        LR,
        risk.smoothness,
        STRONG_CONVEXITY,
        risk.variance,
        BATCH,
        risk.x.shape[2],
        0.0,
        COHORT,
        1,
        iterations,
        gap,
    )
    rows = []
    for steps in STEPS:
        for noise in NOISES:
            setting = replace(base, local_steps=steps, noise=noise)
            assert setting.applies
            both = measured(risk, setting, copies, rng=np.random.default_rng(0))
            bounds = (setting.gap_bound, setting.gradient_bound)
            for (quantity, (index, _)), bound in zip(QUANTITIES.items(), bounds):
                row = {
                    "quantity": quantity,
                    "tau": steps,
                    "sigma": noise,
                    "printed": bound(),
                    "bound": bound(False),
                }
                rows.append(row | {"measured": both[index].mean(), "std": deviation(both[index])})
    return rows


def _panel(
    axis: Axes, rows: list[dict[str, Any]], *, x: str, line: str, values: tuple[float, ...]
) -> None:
    for color, value in zip(("C0", "C1"), values):
        here = [row for row in rows if row[line] == value]
        places = [row[x] for row in here]
        axis.plot(places, [row["bound"] for row in here], "--", color=color)
        mean = [row["measured"] for row in here]
        std = [row["std"] for row in here]
        axis.errorbar(
            places, mean, std, marker="o", ms=4, capsize=2, color=color, label=f"{line} = {value:g}"
        )
    axis.set(xlabel=x, xscale="log", yscale="log")
    if x == "tau":
        axis.set_xticks(STEPS, map(str, STEPS))
        axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(fontsize=9)
