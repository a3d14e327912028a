"""Exact curves of sampled Gaussian releases, rounded up for proofs and down for attacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import log_ndtr
from scipy.stats import binom

from fedpriv.accountants.group import bisect
from fedpriv.accountants.pld import FFT_ROUNDING, gaussian_epsilon

_POINTS = 512
"""Numbers of releases that are told apart."""
_TAIL = 1e-6
"""Share of delta for more releases than the last of these."""
_LARGEST_GAP = 1e3
"""Above it, the two parts of delta leave the range where their difference has digits."""
_SMALLEST_DELTA = 1e-12
"""dp_accounting truncates tails of 1e-15."""
_LARGEST_LOSS = 300.0
"""dp_accounting computes exp(-loss); larger losses use a closed form or none."""
_MOST_RELEASES = 10**5
"""The rounding of more losses, each down, leaves no useful bound."""
_WIDTH, _MOST_POINTS = 17.0, 2**22
"""Of a composed distribution: its deviations, and the points that take a second to transform."""


@lru_cache(maxsize=1024)
def drawn_epsilon(
    gap: float, samples: Sequence[tuple[float, int, float]], delta: float, *, up: bool
) -> float:
    """Epsilon of Gaussian releases if it is seen in which of them a unit takes part.

    gap: how far the unit moves the releases that it always takes part in, in deviations.
    samples: probability, number of releases, and gap of one of them.
    up: whether the result is an upper or a lower bound.

    Given the number K of releases with the unit, the curve is that of one Gaussian with gap
    sqrt(K), so that delta is its mean over the binomial K.
    """
    squares, masses = np.array([gap**2]), np.ones(1)
    tail = _TAIL * delta / max(1, len(samples))
    for share, count, one in samples:
        points, chances = _releases(share, count, tail, up)
        squares = np.add.outer(squares, points * one**2).ravel()
        masses = np.multiply.outer(masses, chances).ravel()
        squares, masses = _fewer(squares, masses, up)
    left = delta * (1 - _TAIL) if up else delta
    gaps = np.sqrt(squares)
    if not up:
        gaps = np.minimum(gaps, _LARGEST_GAP)
    if not math.isfinite(gaps.max()):
        return math.inf

    def too_low(epsilon: float) -> bool:
        return float(masses @ _delta(gaps, epsilon)) > left

    if not too_low(0.0):
        return 0.0
    found = bisect(too_low, 0.0, gaussian_epsilon(float(gaps.max()), left))
    return found if up else found - 1e-9 * max(found, 1.0)


def _releases(share: float, count: int, tail: float, up: bool) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of releases with the unit, and their chances; more have the chance `tail` at most."""
    low, high = max(0, binom.ppf(tail, count, share)), binom.isf(tail, count, share)
    points = np.unique(np.linspace(low, high, _POINTS).round())
    if up:  # K counts as the next point
        above = np.concatenate([[1.0], binom.sf(points, count, share)])
    else:
        above = np.concatenate([binom.sf(points - 1, count, share), [0.0]])
    return points, above[:-1] - above[1:]


def _fewer(squares: np.ndarray, masses: np.ndarray, up: bool) -> tuple[np.ndarray, np.ndarray]:
    """At most `_POINTS` points with the same masses."""
    if len(squares) <= _POINTS:
        return squares, masses
    grid = np.linspace(squares.min(), squares.max(), _POINTS)
    grid[-1] = squares.max()
    place = np.searchsorted(grid, squares, side="left" if up else "right") - (not up)
    return grid, np.bincount(place, masses, _POINTS)


def _delta(gaps: np.ndarray, epsilon: float) -> np.ndarray:
    """Delta of Gaussians with these gaps (Balle and Wang 2018, Theorem 8); no less than it is."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        above = np.exp(log_ndtr(gaps / 2 - epsilon / gaps))
        below = np.exp(epsilon + log_ndtr(-gaps / 2 - epsilon / gaps))
    return np.where(gaps > 0, above - np.where(gaps > _LARGEST_GAP, 0.0, below), 0.0)


@lru_cache(maxsize=256)
def optimistic_epsilon(rate: float, ratio: float, count: int, delta: float) -> float:
    """A lower bound of the epsilon of `count` Poisson-sampled Gaussian releases under add/remove.

    0 where one loss, or the number of releases, is too large for the grid.
    """
    delta += count * FFT_ROUNDING  # the bound must not come from the rounding
    many = not 0 < count <= _MOST_RELEASES or delta >= 1
    if many or ratio <= 0 or 1 / ratio**2 > _LARGEST_LOSS or delta < _SMALLEST_DELTA:
        return 0.0
    scale = rate * math.sqrt(math.expm1(min(1 / ratio**2, 50.0)))  # deviation of one loss
    span = 0.5 / ratio**2 + 10 / ratio
    interval = min(max(scale / 50 / math.sqrt(count), span / 2**17), 0.01)
    width = min(count * span, _WIDTH * scale * math.sqrt(count))
    interval = max(interval, width / _MOST_POINTS)
    if interval > 1:
        return 0.0
    once = pld.from_gaussian_mechanism(
        ratio,
        pessimistic_estimate=False,
        value_discretization_interval=interval,
        sampling_prob=rate,
        use_connect_dots=False,
    )
    return float(once.self_compose(count).get_epsilon_for_delta(delta))
