"""What binomial noise Bin(N, 1/4) on counts hides: exactly in one coordinate, and by a Gaussian in
many.

Somebody sees a vector of counts, each with independent noise, and a record moves them by an unknown
integer vector.

The Gaussian that hides no more. Let F be the distribution function of the noise X, and h =
Phi^-1(F). The ratios P(X = k + 1) / P(X = k) fall, so the best tests of X against X + s are
thresholds; between them the trade-off function is linear, and it lies above that of two Gaussians m
apart if h(k) - h(k - s) <= m for every k. By A. Zubkov, A. Serov, A complete proof of universal
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
from collections.abc import Mapping
from functools import reduce

import numpy as np

P = 0.25
"""Of each bit of noise, as in the protocol's default."""
VARIANCE = P * (1 - P)
"""Of one bit."""
TAIL = 14.0
FEWEST = 1024
"""Bits of noise below which the proof above has no room."""
_WINDOW = 12.0  # standard deviations around the mean that exact sums look at; the rest is 1e-30


def gaussian_gap(trials: int, length: float) -> float:
    """Distance of two unit-variance Gaussians that are at least as easy to tell apart as vectors of
    counts with noise Bin(`trials`, 1/4) in each coordinate that differ by an integer vector; inf
    where nothing is proved.

    length: the vector's L2 norm and sqrt(d) more, for d coordinates. Adjacency: the two vectors, in
    both directions.
    """
    if trials < FEWEST:
        return math.inf
    lowest = P - (TAIL * math.sqrt(VARIANCE * trials) + length + 1) / trials
    return length / math.sqrt(trials * lowest * (1 - lowest)) if lowest > 0 else math.inf


def least_trials(gap: float, length: float) -> int:
    """The smallest number of bits whose `gaussian_gap` is at most `gap` > 0, up to four."""
    high = FEWEST
    while gaussian_gap(high, length) > gap:
        high *= 2
    low = high // 2
    while high - low > 4:
        middle = (low + high) // 2
        low, high = (middle, high) if gaussian_gap(middle, length) > gap else (low, middle)
    return high


def shifted_delta(trials: int, shift: int, epsilon: float) -> float:
    """Exact delta at `epsilon` of telling Bin(trials, 1/4) from itself plus `shift`, both
    directions, up to 1e-30."""
    return _delta(*_log_pmfs(trials, shift), epsilon)


def shifted_epsilon(
    trials: int, shifts: Mapping[int, int], delta: float, *, interval: float = 1e-4
) -> float:
    """Epsilon at `delta` of telling vectors of counts apart, both directions, by privacy loss
    distributions: an upper bound, within about `interval` of the exact value for few coordinates.

    shifts: in how many coordinates the vectors differ by so much. Each direction is one of all
    coordinates together.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    parts = []
    for shift, count in shifts.items():
        still, moved = (dict(enumerate(pmf)) for pmf in _log_pmfs(trials, abs(shift)))
        upper, lower = (moved, still) if shift > 0 else (still, moved)
        once = pld.from_two_probability_mass_functions(
            {k: p for k, p in lower.items() if p > -np.inf},
            {k: p for k, p in upper.items() if p > -np.inf},
            value_discretization_interval=interval,
            symmetric=False,
        )
        parts.append(once.self_compose(count))
    return float(
        reduce(lambda total, part: total.compose(part), parts).get_epsilon_for_delta(delta)
    )


def epsilon_of_one(trials: int, shift: int, delta: float) -> float:
    """Exact epsilon at `delta` of one count, both directions, by bisection to 1e-9; inf beyond
    1000."""
    low = 0.0
    high = 1000.0
    pmfs = _log_pmfs(trials, shift)
    if _delta(*pmfs, high) > delta:
        return math.inf
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(*pmfs, middle) > delta else (low, middle)
    return high


def _log_pmfs(trials: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """ln P(X = k) and ln P(X + shift = k) at all k that matter."""
    from scipy.stats import binom

    reach = math.ceil(_WINDOW * math.sqrt(VARIANCE * trials)) + 1
    low = max(0, int(P * trials) - reach)
    high = min(trials, int(P * trials) + reach)
    k = np.arange(low, high + shift + 1)
    return binom.logpmf(k, trials, P), binom.logpmf(k - shift, trials, P)


def _delta(still: np.ndarray, moved: np.ndarray, epsilon: float) -> float:
    return max(_hockey_stick(still, moved, epsilon), _hockey_stick(moved, still, epsilon))


def _hockey_stick(of: np.ndarray, against: np.ndarray, epsilon: float) -> float:
    with np.errstate(invalid="ignore"):
        loss = of - against  # no number where both are impossible
    seen = loss > epsilon
    return float((np.exp(of[seen]) * -np.expm1(epsilon - loss[seen])).sum())
