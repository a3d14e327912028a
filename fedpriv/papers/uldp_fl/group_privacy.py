"""Epsilon of a group of records against its size (Uldp-FL, Fig. 2): what the paper plots, and what
holds.

Setting of the paper: Poisson sampling with rate 0.01, noise multiplier 5, 100,000 steps, delta
1e-5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedpriv.accountants.events import Composition
from fedpriv.accountants.group import group_dp, group_rdp_epsilon, paper_group_claim
from fedpriv.accountants.pld import group_pld
from fedpriv.accountants.renyi import PAPER_ORDERS
from fedpriv.reports.canvas import plt
from fedpriv.reports.number_table import write_table

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
"""Rule, line and sizes of each curve."""


def draw(folder: Path, profile: str = "quick") -> Path:
    """Compute every curve, write group_privacy.csv and figure.png into `folder`; returns the
    picture's path."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    folder.mkdir(parents=True, exist_ok=True)
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
    axis.set_xticks([1, 2, 4, 8, 16, 32, 64], ["1", "2", "4", "8", "16", "32", "64"])
    axis.minorticks_off()
    axis.set_title(f"q = {Q:g}, sigma = {SIGMA:g}, {STEPS:,} steps", fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    write_table(folder / "group_privacy.csv", ["group_size", "curve", "epsilon"], rows)
    figure.savefig(folder / "figure.png", dpi=150)
    plt.close(figure)
    return folder / "figure.png"
