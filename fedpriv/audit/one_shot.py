"""What epsilon probably is, from one run: an estimate, no bound.

Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar: One-shot empirical privacy estimation for
federated learning, ICLR 2024. Canaries contribute random directions; the cosines of their
directions with what is observed are nearly Gaussian, and two Gaussians have an epsilon. The paper
takes N(0, 1/d) for canaries that are not there; here the ones that were left out are measured,
since directions that are orthogonal to each other bring no noise of their own into the cosines.
Both groups are given the same spread, that of both together. The paper looks at the final model, or
at the largest cosine of all rounds; here projections are added up over rounds, which tells more of
canaries that are in all of them.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon

LARGEST_GAP = 1e3
"""In standard deviations: where there is no noise, only rounding is left."""


def estimated_epsilon(signals: np.ndarray, coins: np.ndarray, delta: float) -> float:
    """Epsilon at `delta` of telling apart two Gaussians: those fitted to the signals (m,) of
    canaries whose coins (m,) are True, and False. Signals may be cosines or any multiple of them.
    NaN for fewer than two of a kind."""
    there = signals[coins]
    absent = signals[~coins]
    if min(len(there), len(absent)) < 2:
        return math.nan
    spread = math.sqrt((there.var() * len(there) + absent.var() * len(absent)) / (len(signals) - 2))
    gap = max(0.0, float(there.mean() - absent.mean()))
    if gap > LARGEST_GAP * spread:
        return math.inf
    return gaussian_epsilon(gap / spread, delta) if spread else 0.0
