"""An estimate of epsilon from one run. It is not a bound.

Andrew, Kairouz, Oh, Oprea, McMahan, Suriyakumar: One-shot empirical privacy estimation for
federated learning, ICLR 2024. Each canary contributes a random direction. The cosine of that
direction with an observation is nearly Gaussian, and two Gaussians have an epsilon.

Differences from the paper:

- The paper assumes N(0, 1/d) for absent canaries. Here the absent canaries are measured, because
  orthogonal directions add no noise of their own to the cosines.
- Both groups get the same spread, that of all canaries together.
- The paper uses the final model, or the largest cosine of all rounds. Here projections are summed
  over rounds, which carries more information about canaries that are in every round.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon

LARGEST_GAP = 1e3
"""In standard deviations. A larger gap means that there is no noise, only rounding."""


def estimated_epsilon(signals: np.ndarray, coins: np.ndarray, delta: float) -> float:
    """Epsilon at `delta` between the Gaussians fitted to present and to absent canaries.

    signals: (m,) cosines, or any multiple of them.
    coins: (m,) bool, whether a canary is present.

    NaN if fewer than two canaries are present, or absent.
    """
    present = signals[coins]
    absent = signals[~coins]
    if min(len(present), len(absent)) < 2:
        return math.nan
    squares = present.var() * len(present) + absent.var() * len(absent)
    spread = math.sqrt(squares / (len(signals) - 2))
    gap = max(0.0, float(present.mean() - absent.mean()))
    if gap > LARGEST_GAP * spread:
        return math.inf
    return gaussian_epsilon(gap / spread, delta) if spread else 0.0
