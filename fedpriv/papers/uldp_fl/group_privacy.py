"""Epsilon of a group of records against its size (Uldp-FL, Fig. 2): the paper's curves and valid
ones.

The paper's setting: Poisson sampling with rate 0.01, noise multiplier 5, 100,000 steps, delta
1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from fedpriv.accountants.events import Composition
from fedpriv.accountants.group import group_dp, group_rdp_epsilon, paper_group_claim
from fedpriv.accountants.pld import group_pld
from fedpriv.accountants.renyi import PAPER_ORDERS
from fedpriv.reports.canvas import grid_and_legend, plain_ticks, plt, save

Q = 0.01
SIGMA = 5.0
STEPS = 100_000
DELTA = 1e-5
POWERS = (1, 2, 4, 8, 16, 32, 64)
EVERY_FOURTH = (*range(1, 62, 4),)
SIZES = {"quick": POWERS, "paper": (*range(1, 17), *range(20, 65, 4))}


def paper_normal_dp(runs: Composition, size: int, delta: float) -> float:
    """The paper's conversion of (epsilon, delta)-DP: a valid lemma on an order grid that ends too
    early for large k."""
    return group_dp(runs, size, delta, orders=PAPER_ORDERS)


CURVES: dict[
    str, tuple[Callable[[Composition, int, float], float], str, Callable[[str], Sequence[int]]]
] = {
    "claimed (paper, RDP)": (paper_group_claim, "C3--", lambda profile: POWERS),
    "claimed (paper, normal DP)": (paper_normal_dp, "C1--", lambda profile: EVERY_FOURTH),
    "valid RDP lemma": (group_rdp_epsilon, "C0-", lambda profile: POWERS),
    "tight (mixture of Gaussians)": (group_pld, "C2-", lambda profile: SIZES[profile]),
}
"""Rule, line style, and group sizes by profile, of each curve."""


def draw(folder: Path, profile: str = "quick") -> None:
    """Compute every curve; write group_privacy.csv and figure.png into a folder."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    runs = [(PoissonSampledDpEvent(Q, GaussianDpEvent(SIGMA)), STEPS)]
    figure, axis = plt.subplots(figsize=(6.5, 4.4), layout="constrained")
    rows: list[tuple[int, str, float]] = []
    for name, (rule, style, sizes_of) in CURVES.items():
        sizes = sizes_of(profile)
        epsilons = [rule(runs, size, DELTA) for size in sizes]
        rows += [(size, name, epsilon) for size, epsilon in zip(sizes, epsilons)]
        axis.plot(sizes, epsilons, style, marker=".", label=name)
    axis.set(
        xlabel="group size k", ylabel=f"epsilon at delta = {DELTA:g}", xscale="log", yscale="log"
    )
    plain_ticks(axis, POWERS)
    axis.set_title(f"q = {Q:g}, sigma = {SIGMA:g}, {STEPS:,} steps", fontsize=10)
    grid_and_legend(axis, 8)
    table = pd.DataFrame(rows, columns=["group_size", "curve", "epsilon"])
    table.to_csv(folder / "group_privacy.csv", index=False)
    save(figure, folder / "figure.png")
