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
from dataclasses import dataclass

import numpy as np
from scipy.special import nctdtrinc

from fedpriv.accountants.pld import gaussian_epsilon

LARGEST_GAP = 1e3
"""In standard deviations. A larger gap means that there is no noise, only rounding."""


@dataclass(frozen=True)
class Estimate:
    """An estimated epsilon with an interval.

    epsilon: between the two fitted Gaussians.
    low, high: ends of the interval; the one that holds with the asked confidence if signals are
        Gaussian with one spread. Both are NaN where there is no noise to measure.
    """

    epsilon: float
    low: float = math.nan
    high: float = math.nan


def estimated_epsilon(
    signals: np.ndarray, coins: np.ndarray, delta: float, confidence: float = 0.95
) -> Estimate:
    """Epsilon at `delta` between the Gaussians fitted to present and to absent canaries.

    signals: (m,) cosines, or any multiple of them.
    coins: (m,) bool, whether a canary is present.
    confidence: of the interval. The gap of the means over the spread, times a constant, has a
        noncentral t distribution; its two quantiles are inverted.

    NaN if fewer than two canaries are present, or absent.
    """
    present = signals[coins]
    absent = signals[~coins]
    if min(len(present), len(absent)) < 2:
        return Estimate(math.nan)
    squares = present.var() * len(present) + absent.var() * len(absent)
    spread = math.sqrt(squares / (len(signals) - 2))
    gap = max(0.0, float(present.mean() - absent.mean()))
    if gap > LARGEST_GAP * spread:
        return Estimate(math.inf)
    if not spread:
        return Estimate(0.0)
    scale = math.sqrt(len(present) * len(absent) / len(signals))
    seen = float(present.mean() - absent.mean()) / spread * scale
    tail = (1 - confidence) / 2
    ends = [
        gaussian_epsilon(max(0.0, float(shift)) / scale, delta)
        for shift in nctdtrinc(len(signals) - 2, [1 - tail, tail], seen)
    ]
    return Estimate(gaussian_epsilon(gap / spread, delta), *ends)
