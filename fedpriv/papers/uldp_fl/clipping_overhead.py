"""Kato et al.'s Theorem 6: terms of noise and clipping beside measurements, on embedded records."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedpriv.papers.uldp_fl.theory import (
    TERMS,
    UldpAvgSetting,
    breast_cancer_pairs,
    measure_overheads,
)
from fedpriv.reports.canvas import Axes, Figure, grid_and_legend, plt, save_bounds

USERS = 12
SILOS = 3
BASE = UldpAvgSetting(
    clip=1.0,
    noise_multiplier=5.0,
    by_records=False,
    local_lr=0.5,
    local_steps=4,
    global_lr=SILOS * math.sqrt(USERS * 4),
)
"""The global step size is that of Remark 2, |S| sqrt(|U| Q)."""
NOISES = (0.5, 1.0, 2.0, 5.0, 10.0)
NOISE_CLIPS = (0.1, 1.0)
CLIPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SIZES = {"quick": (20, 100, 3), "paper": (100, 400, 10)}
"""Rounds, copies of a round, and seeds, by profile."""
BIASES = {"sampling": "batches (5th term)", "clipping": "between pairs (6th term)"}
WEIGHTS = {False: "weights 1 / |S|", True: "weights by records"}
LOOKS = (("C0", "o"), ("C1", "s"))


def draw(folder: Path, profile: str = "quick") -> Figure:
    """Run every setting; write clipping_overhead.csv and figure.png into a folder."""
    rounds, copies, seeds = SIZES[profile]
    rows = table(rounds, copies, seeds)
    rows.to_csv(folder / "clipping_overhead.csv", index=False)

    figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
    for look, clip in zip(LOOKS, NOISE_CLIPS):
        here = rows[(rows["clip"] == clip) & ~rows["by_records"]]
        _draw_line(axes[0], here, "noise_multiplier", "noise", look, f"C = {clip:g}")
    axes[0].set(xlabel="sigma", ylabel="part of the bound on |∇f|²", title="noise (4th term)")
    for axis, (by_records, title) in zip(axes[1:], WEIGHTS.items()):
        here = rows[(rows["by_records"] == by_records) & (rows["noise_multiplier"] == 5)]
        for look, (term, label) in zip(LOOKS, BIASES.items()):
            _draw_line(axis, here, "clip", term, look, label)
        gradients = here.sort_values("clip").set_index("clip")["gradient"]
        axis.plot(gradients, "k:", label="$|\\nabla f|^2$ itself")
        axis.set(xlabel="clip C", title=f"bias of clipping, {title}")
    axes[2].sharey(axes[1])
    axes[1].set_ylim(3e-7, 3)
    for axis in axes:
        axis.set(xscale="log", yscale="log")
        grid_and_legend(axis, 8, loc="upper left" if axis is axes[0] else "lower left")
    save_bounds(
        figure,
        folder / "figure.png",
        bound="the theorem's term",
        measured=f"measured ({seeds} seeds, +- std)",
        about=f"ULDP-AVG, logistic regression on breast cancer records, {USERS} users in {SILOS} "
        f"silos (zipf), Q = 4 steps of 0.5, {rounds} rounds; biases at sigma 5; a simulation that "
        "looks at all records, not a private run",
    )
    return figure


def table(rounds: int, copies: int, seeds: int) -> pd.DataFrame:
    """A row for each clip, noise multiplier and weighting.

    Each row has the theorem's terms, mean and deviation over seeds of their measurements, in parts
    of |grad f|^2, and the mean of |grad f|^2.
    """
    noisy = [
        replace(BASE, clip=clip, noise_multiplier=noise) for clip in NOISE_CLIPS for noise in NOISES
    ]
    clipped = [
        replace(BASE, clip=clip, by_records=by_records) for by_records in WEIGHTS for clip in CLIPS
    ]
    risks = breast_cancer_pairs(USERS, SILOS)
    rows = []
    for setting in dict.fromkeys([*noisy, *clipped]):
        runs = pd.DataFrame(
            measure_overheads(risks, setting, rounds, copies, rng=np.random.default_rng(seed))
            for seed in range(seeds)
        )
        row = {key: getattr(setting, key) for key in ("clip", "noise_multiplier", "by_records")}
        deviations = {f"{term}_std": runs[f"{term}_measured"].std() for term in TERMS}
        rows.append({**row, **runs.mean(), **deviations})
    return pd.DataFrame(rows)


def _draw_line(
    axis: Axes, rows: pd.DataFrame, x: str, term: str, look: tuple[str, str], label: str
) -> None:
    """Draw a term and its measurements, except where nothing is clipped."""
    shown = rows[rows[f"{term}_measured"] > 1e-12].sort_values(x)
    style: dict[str, Any] = dict(zip(("color", "marker"), look))
    axis.plot(shown[x], shown[term], "--", ms=3, mfc="none", **style)
    points = shown[x], shown[f"{term}_measured"], shown[f"{term}_std"]
    axis.errorbar(*points, ls="-", ms=4, capsize=2, label=label, **style)
