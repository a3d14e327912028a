"""Theorem 6 of Kato et al.: its terms of noise and of clipping beside what they bound, on embedded
records."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.papers.uldp_fl.theory import Setting, breast_cancer_pairs, run
from fedpriv.reports.canvas import Axes, plt, save_bounds
from fedpriv.reports.number_table import write_table
from fedpriv.reports.summary import deviation

USERS = 12
SILOS = 3
BASE = Setting(1.0, 5.0, False, local_lr=0.5, local_steps=4, global_lr=SILOS * math.sqrt(USERS * 4))
"""With the global step that Remark 2 takes, |S| sqrt(|U| Q)."""
NOISES = (0.5, 1.0, 2.0, 5.0, 10.0)
NOISE_CLIPS = (0.1, 1.0)
CLIPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SIZES = {"quick": (20, 100, 3), "paper": (100, 400, 10)}
"""Rounds, copies of a round, and seeds of a profile."""
BIASES = {"sampling": "batches (5th term)", "clipping": "between pairs (6th term)"}
WEIGHTS = {False: "weights 1 / |S|", True: "weights by records"}
LOOKS = (("C0", "o", "-"), ("C1", "s", "-"))


def draw(folder: Path, profile: str = "quick") -> Path:
    """Run every setting, write clipping_overhead.csv and figure.png into `folder`; returns the
    picture."""
    rounds, copies, seeds = SIZES[profile]
    rows = table(rounds, copies, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "clipping_overhead.csv", list(rows[0]), (row.values() for row in rows))

    figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
    for look, clip in zip(LOOKS, NOISE_CLIPS):
        here = [row for row in rows if row["clip"] == clip and not row["by_records"]]
        _line(axes[0], here, "noise_multiplier", "noise", look, f"C = {clip:g}")
    axes[0].set(
        xlabel="sigma", ylabel="part of the bound on $|\\nabla f|^2$", title="noise (4th term)"
    )
    for axis, (by_records, title) in zip(axes[1:], WEIGHTS.items()):
        here = [
            row for row in rows if row["by_records"] == by_records and row["noise_multiplier"] == 5
        ]
        for look, (term, label) in zip(LOOKS, BIASES.items()):
            _line(axis, here, "clip", term, look, label)
        axis.plot(
            *zip(*sorted((row["clip"], row["gradient"]) for row in here)),
            "k:",
            label="$|\\nabla f|^2$ itself",
        )
        axis.set(xlabel="clip C", title=f"bias of clipping, {title}")
    axes[2].sharey(axes[1])
    axes[1].set_ylim(3e-7, 3)
    for axis in axes:
        axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper left" if axis is axes[0] else "lower left")
    return save_bounds(
        figure,
        folder / "figure.png",
        bound="the theorem's term",
        measured=f"measured ({seeds} seeds, +- std)",
        about=f"ULDP-AVG, logistic regression on breast cancer records, {USERS} users in {SILOS} "
        "silos (zipf), Q = 4 "
        f"steps of 0.5, {rounds} rounds; biases at sigma 5; a simulation that looks at all "
        "records, not a private run",
    )


def table(rounds: int, copies: int, seeds: int) -> list[dict[str, Any]]:
    """A row for each clip, noise multiplier and weighting: the terms, and mean and deviation over
    seeds of what was measured, in parts of |grad f|^2; and the mean of that."""
    noisy = [
        replace(BASE, clip=clip, noise_multiplier=noise) for clip in NOISE_CLIPS for noise in NOISES
    ]
    clipped = [
        replace(BASE, clip=clip, by_records=by_records) for by_records in WEIGHTS for clip in CLIPS
    ]
    risks = breast_cancer_pairs(USERS, SILOS)
    rows = []
    for setting in dict.fromkeys([*noisy, *clipped]):
        runs = [
            run(risks, setting, rounds, copies, rng=np.random.default_rng(seed))
            for seed in range(seeds)
        ]
        row: dict[str, Any] = {
            key: getattr(setting, key) for key in ("clip", "noise_multiplier", "by_records")
        }
        for term in ("noise", *BIASES):
            row[term] = float(np.mean([getattr(one.terms, term) for one in runs]))
            measured = [getattr(one.measured, term) for one in runs]
            row |= {
                f"{term}_measured": float(np.mean(measured)),
                f"{term}_std": deviation(measured),
            }
        rows.append(row | {"gradient": float(np.mean([one.gradient for one in runs]))})
    return rows


def _line(
    axis: Axes,
    rows: list[dict[str, Any]],
    x: str,
    term: str,
    look: tuple[str, str, str],
    label: str,
) -> None:
    """Zero is left out: nothing is clipped there."""
    color, marker, style = look
    rows = sorted((row for row in rows if row[f"{term}_measured"] > 1e-12), key=lambda row: row[x])
    places = [row[x] for row in rows]
    axis.plot(
        places, [row[term] for row in rows], "--", color=color, marker=marker, ms=3, mfc="none"
    )
    mean, std = ([row[f"{term}_{what}"] for row in rows] for what in ("measured", "std"))
    axis.errorbar(
        places, mean, std, ls=style, marker=marker, ms=4, capsize=2, color=color, label=label
    )
