"""The privacy of binomial noise X ~ Bin(N, 1/4) on counts, bounded by that of a Gaussian.

An observer sees a vector of counts, each with independent noise. A record changes the counts by
an unknown integer vector s.

**The dominating Gaussian.** Let F be the distribution function of X, and h = Phi^-1(F). The
ratios P(X = k + 1) / P(X = k) decrease, so the best tests of X against X + s are thresholds.
Between thresholds the trade-off function is linear. It lies above that of two Gaussians at
distance m if h(k) - h(k - s) <= m for every k. With a step a = max_k h(k) - h(k - 1), m = a |s|
will do. Gaussians compose by the root of their squares: integer shifts of L2 norm R, over any
number of coordinates, stay within a R.

**The step.** For N up to `COMPUTED` all steps are computed. Beyond, a bound is proved. A. Zubkov
and A. Serov (A complete proof of universal inequalities for the distribution function of the
binomial law, Theory Probab. Appl. 57, 2013) show C(k) <= h(k) <= C(k + 1) for C(x) = sgn(x - N/4)
sqrt(2 N H(x / N)), where H is the relative entropy of coins with heads x / N and 1/4. So z = C(k)
lies in [h(k - 1), h(k)]. By Stirling's formula P(X = k) <= c phi(z) with v = k / N and c = (N v
(1 - v))^-1/2. P(X = k) is the integral of phi over a step of length a that contains z. Over this
step phi is at least phi(z) exp(-|z| t - t^2 / 2) at distance t, so c >= a - b a^2 with b = |z| /
2 + 1/6, while a <= 1. From a <= C(k + 1) - C(k - 1) <= 2 c < 1 / (2 b) follows the smaller root,
a <= (1 - sqrt(1 - 4 b c)) / (2 b).

**The ends.** Only k within `TAIL` standard deviations of the mean, and the shift, are looked at.
Further out P(X <= k) or P(X > k) is below tau = exp(-64), by Chernoff's bound for N >= `FEWEST`.
There the trade-off function is only held to the Gaussian's value tau further on. By Blackwell's
theorem a law of X within tau in total variation is then a function of the Gaussian. So a release
of d coordinates adds d tau to delta and nothing to epsilon: nothing that float64 shows beside a
delta of 1e-15.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

P = 0.25
"""Probability that a bit of noise is 1, as in the protocol's default."""
VARIANCE = P * (1 - P)
"""Variance of one bit."""
TAIL = 12.0
"""Standard deviations from the mean up to which the proof holds."""
FEWEST = 1024
"""Smallest number of bits that the proof covers."""
COMPUTED = 2**24
"""Largest number of bits for which every step is computed."""
ROUNDING = 1e-9
"""What float64 may lose of a computed step, relatively."""


def gaussian_gap(trials: int, length: float) -> float:
    """Distance of two unit-variance Gaussians that are at least as easy to distinguish as two
    vectors of counts, in both directions; inf if nothing is proved.

    trials: number of bits of the noise Bin(`trials`, 1/4) in each coordinate.
    length: L2 norm of the vectors' difference, an integer vector.
    """
    if trials < FEWEST:
        return math.inf
    reach = TAIL * math.sqrt(VARIANCE * trials) + length + 1
    low, high = math.floor(P * trials - reach), math.ceil(P * trials + reach)
    if low < 1 or high >= trials:
        return math.inf
    return length * (largest_step if trials <= COMPUTED else step_bound)(trials, low, high)


@lru_cache(maxsize=256)
def largest_step(trials: int, low: int, high: int) -> float:
    """The largest h(k) - h(k - 1) for `low` <= k <= `high`; inf where float64 has no h."""
    from scipy.special import betainc, ndtri

    k = np.arange(low - 1, high + 1, dtype=np.float64)
    lower = k < P * trials
    # Each tail by its own function, so that neither is a difference from 1.
    below = ndtri(betainc(trials - k[lower], k[lower] + 1, 1 - P))
    above = -ndtri(betainc(k[~lower] + 1, trials - k[~lower], P))
    h = np.concatenate([below, above])
    return float(np.diff(h).max()) * (1 + ROUNDING) if np.isfinite(h).all() else math.inf


def step_bound(trials: int, low: int, high: int) -> float:
    """A bound on every h(k) - h(k - 1) for `low` <= k <= `high`; inf if the proof does not hold."""
    # v (1 - v) is smallest at an end, which lies one further on for C(k + 1) - C(k - 1).
    c = max(1 / math.sqrt(k * (1 - k / trials)) for k in (low - 1, high + 1))
    z = max(math.sqrt(2 * trials * _entropy(k / trials)) for k in (low, high))
    b = z / 2 + 1 / 6
    return 2 * c / (1 + math.sqrt(1 - 4 * b * c)) if 4 * b * c < 1 else math.inf


def _entropy(x: float) -> float:
    """The relative entropy of coins with heads x and `P`, in nats."""
    return x * math.log(x / P) + (1 - x) * math.log((1 - x) / (1 - P))


def least_trials(gap: float, length: float) -> int:
    """A number of bits whose `gaussian_gap` is at most `gap` > 0, at most four above the
    smallest."""
    high = max(FEWEST, math.ceil((length / gap) ** 2 / VARIANCE))  # no fewer would do
    low = high - 1
    while (found := gaussian_gap(high, length)) > gap:
        # The gap falls nearly as the root of the bits.
        ratio = (found / gap) ** 2 if found < math.inf else 2.0
        low, high = high, math.ceil(high * ratio) + 1
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (middle, high) if gaussian_gap(middle, length) > gap else (low, middle)
    return high
