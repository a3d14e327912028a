"""The privacy of binomial noise Bin(N, 1/4) on counts, bounded by that of a Gaussian.

An observer sees a vector of counts, each with independent noise. A record changes the counts by an
unknown integer vector.

**The dominating Gaussian.** Let F be the distribution function of the noise X, and h = Phi^-1(F).
The ratios P(X = k + 1) / P(X = k) decrease, so the best tests of X against X + s are thresholds.
Between thresholds the trade-off function is linear. It lies above that of two Gaussians at distance
m if h(k) - h(k - s) <= m for every k. By A. Zubkov, A. Serov, A complete proof of universal
inequalities for the distribution function of the binomial law (Theory Probab. Appl. 57, 2013), C(k)
<= h(k) <= C(k + 1) for C(x) = sgn(x - N/4) sqrt(2 N H(x / N)), H the relative entropy of coins with
heads x / N and 1/4. From H'^2 = 2 integral of H' H'' follows C' <= c = (N min v (1 - v))^-1/2 for
the least v (1 - v) on the way, v = x / N, so m = c (|s| + 1) will do. Gaussians compose by the root
of their squares: all integer shifts of d coordinates with L2 norm R stay within c (R + sqrt(d)).

v may be kept from the ends. Where P(X <= k) or P(X > k) is below tau, the trade-off function is
only held to the Gaussian's value tau further on; by Blackwell's theorem a law of X within tau in
total variation is then a function of the Gaussian, so that a release of d coordinates adds d tau to
delta and nothing to epsilon. With `TAIL` standard deviations below the mean tau is below exp(-98)
(M. Okamoto, Some inequalities relating to the partial sum of binomial probabilities, 1958), and
above N / 2 below exp(-0.14 N): nothing that float64 shows beside a delta of 1e-15.
"""

from __future__ import annotations

import math

P = 0.25
"""Probability that a bit of noise is 1, as in the protocol's default."""
VARIANCE = P * (1 - P)
"""Variance of one bit."""
TAIL = 14.0
"""Standard deviations below the mean up to which the proof holds."""
FEWEST = 1024
"""Smallest number of bits that the proof covers."""


def gaussian_gap(trials: int, length: float) -> float:
    """Distance of two unit-variance Gaussians that are at least as easy to distinguish as two
    vectors of counts, in both directions; inf if nothing is proved.

    trials: number of bits of the noise Bin(`trials`, 1/4) in each coordinate.
    length: L2 norm of the vectors' difference plus sqrt(d), for d coordinates.
    """
    if trials < FEWEST:
        return math.inf
    lowest = P - (TAIL * math.sqrt(VARIANCE * trials) + length + 1) / trials
    return length / math.sqrt(trials * lowest * (1 - lowest)) if lowest > 0 else math.inf


def least_trials(gap: float, length: float) -> int:
    """A number of bits whose `gaussian_gap` is at most `gap` > 0, at most four above the
    smallest."""
    high = FEWEST
    while gaussian_gap(high, length) > gap:
        high *= 2
    low = high // 2
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (middle, high) if gaussian_gap(middle, length) > gap else (low, middle)
    return high
