"""Exact privacy of binomial noise Bin(N, 1/4) on counts, to compare bounds with."""

import math
from functools import reduce

import numpy as np

from fedpriv.accountants.group import bisect
from fedpriv.accountants.shifted_binomial import VARIANCE, P

_WINDOW = 12.0
"""Standard deviations around the mean that exact sums cover; the rest has mass 1e-30."""


def level_variance(encoding, vectors: np.ndarray) -> np.ndarray:
    """Variance of each coordinate of a decoded sum of `vectors` (n, d) as levels: (d,) float64."""
    above = (vectors / encoding.unit + encoding.levels / 2) % 1.0
    bits = encoding.parties * encoding.trials * VARIANCE
    spread: np.ndarray = (above * (1 - above)).sum(axis=0) + bits
    return spread * encoding.unit**2


def shifted_delta(trials: int, shift: int, epsilon: float) -> float:
    """Exact delta at `epsilon` of Bin(trials, 1/4) against the same plus `shift`, both directions,
    up to 1e-30."""
    return _delta(*_log_pmfs(trials, shift), epsilon)


def shifted_epsilon(trials: int, shifts, delta: float, *, interval: float = 1e-4) -> float:
    """Epsilon at `delta` of two vectors of counts, both directions, by privacy loss distributions:
    an upper bound, within about `interval` of the exact value for few coordinates.

    shifts: for each difference, the number of coordinates with it. A direction applies to all
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
    """Exact epsilon at `delta` of one count, both directions, up to 1e-9; inf beyond 1000."""
    pmfs = _log_pmfs(trials, shift)
    if _delta(*pmfs, 1000.0) > delta:
        return math.inf
    return bisect(lambda epsilon: _delta(*pmfs, epsilon) > delta, 0.0, 1000.0)


def _log_pmfs(trials: int, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """ln P(X = k) and ln P(X + shift = k) at all relevant k."""
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
