"""Two neighbouring data sets as two distributions, and the exact epsilon between them.

A pair lists outcomes with their log-probabilities under both data sets. Everything here loses
information or rounds privacy loss down, so that an epsilon is a lower bound of the true one:
outcomes are merged into bins (data processing), losses are rounded down to a grid. The stated error
is `DELTA_ERROR` in delta (floating point and what an FFT wraps around), charged to the bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, log_ndtr, logsumexp

DELTA_ERROR = 1e-11
"""The largest error of a computed delta; a target delta is raised by it."""
BINS = 3000
WIDE = 10.0
"""Bins reach this many deviations beyond the outermost mean."""
GRIDS = (2**14, 2**20)


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise. scale: its deviation."""

    scale: float
    reach: float = WIDE

    def log_cdf(self, x, shift):
        return log_ndtr((x - shift) / self.scale)

    def log_sf(self, x, shift):
        return log_ndtr((shift - x) / self.scale)


@dataclass(frozen=True)
class LaplaceSum:
    """The sum of independent Laplace draws. scale: of one; shares: how many."""

    scale: float
    shares: int = 1

    @property
    def reach(self) -> float:
        return 35.0 + 4 * self.shares

    def log_sf(self, x, shift):
        """Laplace is a difference of exponentials: above 0 the sum's density is a mixture of Gamma
        densities, with weights C(n-1+k, k) / 2^(n+k) on the shape n-k."""
        n, z = self.shares, (x - shift) / self.scale
        k = np.arange(n)
        log_weights = gammaln(n + k) - gammaln(n) - gammaln(k + 1) - (n + k) * math.log(2)
        terms = np.array([logsumexp(log_weights[: n - i]) - gammaln(i + 1) for i in k])
        size = np.abs(z)
        powers = [
            term + (i * np.log(size + 1e-300) if i else 0 * z) for i, term in enumerate(terms)
        ]
        tail = logsumexp(powers, axis=0) - size
        return np.where(z >= 0, tail, np.log1p(-np.exp(np.minimum(tail, math.log(0.5)))))

    def log_cdf(self, x, shift):
        return self.log_sf(-x, -shift)


@dataclass(frozen=True)
class Largest:
    """The largest of several noised sums, of which one is shifted.

    noise: law of the noise of each.
    sums: how many.
    """

    noise: Gaussian | LaplaceSum
    sums: int

    @property
    def scale(self) -> float:
        return self.noise.scale

    @property
    def reach(self) -> float:
        return self.noise.reach

    def log_cdf(self, x, shift):
        return self.noise.log_cdf(x, shift) + (self.sums - 1) * self.noise.log_cdf(x, 0.0)

    def log_sf(self, x, shift):
        """From the distribution function; far out, where it rounds to 1, the union bound."""
        below = self.log_cdf(x, shift)
        exact = np.log(-np.expm1(np.minimum(below, -1e-300)))
        others = self.noise.log_sf(x, 0.0) + math.log(max(self.sums - 1, 1e-300))
        return np.where(below > -1e-9, np.logaddexp(self.noise.log_sf(x, shift), others), exact)


Moves = Mapping[float, float]
"""Probabilities of how far the unit moves a sum."""


@dataclass(frozen=True)
class Pair:
    """Outcomes of one release.

    p, q: log-probabilities under the first and the second data set.
    distance: if it is exactly a Gaussian against a shifted one, the shift in deviations.
    """

    p: np.ndarray
    q: np.ndarray
    distance: float | None = None

    def reversed(self) -> Pair:
        return Pair(self.q, self.p, self.distance)


def shifted(law, p: Moves, q: Moves) -> Pair:
    """A sum whose noise follows `law`, moved at random."""
    moves = sorted({*p, *q})
    low, high = (
        side + law.scale * law.reach * sign for side, sign in ((moves[0], -1), (moves[-1], 1))
    )
    edges = np.union1d(np.linspace(low, high, BINS), moves)
    masses = {move: _log_masses(law, edges, move) for move in moves}

    def mixture(weights: Moves) -> np.ndarray:
        parts = [math.log(w) + masses[move] for move, w in weights.items() if w > 0]
        return logsumexp(parts, axis=0)

    one = len(p) == len(q) == 1 and isinstance(law, Gaussian)
    return Pair(mixture(p), mixture(q), (moves[-1] - moves[0]) / law.scale if one else None)


def _log_masses(law, edges: np.ndarray, shift: float) -> np.ndarray:
    """Log-probabilities of the bins, the outermost two unbounded; from the nearer tail."""
    inner = edges[1:-1]
    below = np.concatenate([[-np.inf], law.log_cdf(inner, shift), [0.0]])
    above = np.concatenate([[0.0], law.log_sf(inner, shift), [-np.inf]])
    right = above[:-1] < math.log(0.5)
    big = np.where(right, above[:-1], below[1:])
    small = np.where(right, above[1:], below[:-1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return big + np.log(-np.expm1(np.minimum(small - big, 0.0)))


def told_apart(branches: Sequence[tuple[float, float, Pair]]) -> Pair:
    """Branches that the observer recognises, each with its probability under both data sets."""
    with np.errstate(divide="ignore"):
        p = [np.log(a) + pair.p for a, _, pair in branches]
        q = [np.log(b) + pair.q for _, b, pair in branches]
    if len(branches) == 1:
        return branches[0][2]
    return Pair(np.concatenate(p), np.concatenate(q))


NOTHING = Pair(np.zeros(1), np.zeros(1), 0.0)
"""The same outcome under both."""


def revealed(probability: float) -> Pair:
    """An event that only the first data set can cause."""
    with np.errstate(divide="ignore"):
        return Pair(np.log([probability, 1 - probability]), np.array([-np.inf, 0.0]))


def hidden_coin(pair: Pair, rate: float) -> Pair:
    """With probability `rate` the first distribution, else the second; against the second."""
    with np.errstate(divide="ignore"):
        p = np.logaddexp(math.log(rate) + pair.p, np.log1p(-rate) + pair.q)
    return Pair(p, pair.q)


def epsilon(steps: Sequence[tuple[Pair, int]], delta: float) -> float:
    """A lower bound of the epsilon at `delta` of independent pairs, each released several times."""
    if all(pair.distance is not None for pair, _ in steps):
        return gaussian_epsilon(math.sqrt(sum(t * pair.distance**2 for pair, t in steps)), delta)
    certain = -math.expm1(sum(t * math.log1p(-_impossible(pair)) for pair, t in steps))
    if certain > delta * (1 + 1e-9):
        return math.inf
    losses, masses = _composed([(*_finite(pair), t) for pair, t in steps], delta)
    return _solve(losses, masses, delta - certain + DELTA_ERROR)


def composed(pair: Pair, times: int, delta: float) -> Pair:
    """The same pair several times, as one; losses are rounded towards 0.

    Floating point tells losses of each sign from one side. What it cannot tell is dropped.
    """
    halves = []
    for side in (pair, pair.reversed()):
        losses, masses = _composed([(*_finite(side), times)], delta)
        keep = (masses > 1e-14) & (losses >= 0)
        halves.append((np.log(masses[keep]), np.log(masses[keep]) - losses[keep]))
    (p, q), (back_q, back_p) = halves
    return Pair(np.concatenate([p, back_p]), np.concatenate([q, back_q]))


def _impossible(pair: Pair) -> float:
    """The probability of outcomes that the second data set cannot cause."""
    return min(float(np.exp(pair.p[np.isneginf(pair.q)]).sum()), 1 - 1e-16)


def _finite(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    keep = np.isfinite(pair.p) & np.isfinite(pair.q)
    return pair.p[keep] - pair.q[keep], np.exp(pair.p[keep])


def _composed(steps, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses on a grid, and their probabilities. Chernoff's bound says which losses matter."""
    orders = np.geomspace(1e-3, 1e3, 40)

    def moments(sign: int) -> np.ndarray:
        logs = [
            t * logsumexp(sign * np.outer(orders, loss) + np.log(np.maximum(mass, 1e-300)), axis=1)
            for loss, mass, t in steps
        ]
        return np.sum(logs, axis=0)

    upper, lower = moments(1), moments(-1)
    count = sum(t for *_, t in steps)
    high = min(float(((upper + 34) / orders).min()), sum(t * loss.max() for loss, _, t in steps))
    low = max(-float(((lower + 34) / orders).min()), sum(t * loss.min() for loss, _, t in steps))
    low = min(low, high)
    scale = max(float(((upper - math.log(delta)) / orders).min()), 1e-3)
    width = high - low + 1e-6
    wanted = width * (count + 1) / (0.008 * scale)
    size = int(np.clip(2 ** math.ceil(math.log2(wanted)), *GRIDS))
    step = width / (size - 2 * min(count, size // 4))
    product = np.ones(size // 2 + 1, dtype=complex)
    for loss, mass, times in steps:
        place = np.floor(np.minimum(loss, high) / step).astype(np.int64) % size
        product *= np.fft.rfft(np.bincount(place, mass, size)) ** times
    first = math.floor(low / step) - min(count, size // 4)
    return (first + np.arange(size)) * step, np.roll(np.fft.irfft(product, size), -first)


def _solve(losses: np.ndarray, masses: np.ndarray, delta: float) -> float:
    """The largest loss of the grid at which the hockey-stick divergence is at least `delta`."""
    tails = np.cumsum(masses[::-1])[::-1]

    def divergence(index: int) -> float:
        near = slice(index, index + int(45 / (losses[1] - losses[0])) + 2)
        return tails[index] - float(masses[near] @ np.exp(losses[index] - losses[near]))

    low, high = int(np.searchsorted(losses, 0.0)), len(losses) - 1
    if low >= high or divergence(low) < delta:
        return 0.0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if divergence(middle) >= delta else (low, middle)
    return float(losses[low])


def gaussian_epsilon(distance: float, delta: float) -> float:
    """Closed formula (Balle and Wang 2018, Theorem 8) for means `distance` deviations apart."""

    def log_delta(value: float) -> float:
        first = log_ndtr(distance / 2 - value / distance)
        second = value + log_ndtr(-distance / 2 - value / distance)
        return float(first + np.log1p(-np.exp(min(second - first, -1e-300))))

    if distance == 0 or log_delta(0.0) <= math.log(delta):
        return 0.0
    low, high = 0.0, distance**2 / 2 + distance * 40
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(middle) > math.log(delta) else (low, middle)
    return low
