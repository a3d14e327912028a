"""Parts of a user's vector: what each sums, and what its noisy sums say.

Intervals hold with probability 0.95 each, over the noise, for the records at hand. They rest on one
number, `noise`: how far the noise of a sum reaches (`Mechanism.spread`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from fedpriv.mechanisms.strategy import square_root


class Estimate(NamedTuple):
    """A released number with its interval.

    statistic: its name.
    of: bin, category or share of users; empty: the whole column.
    value: estimate.
    low, high: ends of the interval.
    """

    statistic: str
    of: str
    value: float
    low: float
    high: float


class Part(ABC):
    """A part of a user's vector.

    size: number of coordinates.
    longest: bound on the L1 norm of its vectors.
    """

    size: int
    longest: float = 1.0

    @abstractmethod
    def vectors(self, x: np.ndarray) -> np.ndarray:
        """Vectors (n, size) of L2 norm at most 1 for values (n,), none of them NaN."""

    @abstractmethod
    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        """What noisy sums (size,) say, whose noise reaches so far."""


class Count(Part):
    """The number of users."""

    size = 1

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.ones((len(x), 1))

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        yield counted("count", "", float(sums[0]), noise)


@dataclass(frozen=True)
class Moments(Part):
    """Mean and deviation of a column of numbers.

    low, high: bounds of the column.
    """

    low: float
    high: float
    size = 3

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.stack([(1 - x) ** 2, 2 * x * (1 - x), x * x], axis=1)

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        second, number = sums[2], float(sums.sum())
        mean, low, high = ratio(sums, np.array([0, 0.5, 1]), noise)
        inside = np.clip([mean, low, high], 0.0, 1.0) * (self.high - self.low) + self.low
        yield Estimate("mean", "", *map(float, inside))
        if number <= 2 * noise:
            spread = self.high - self.low
            yield Estimate("deviation", "", spread / 4, 0.0, spread / 2)
            return
        square = second / number
        slope = np.array([0, 0.5, 1]) - mean, np.array([0, 0, 1]) - square
        error = noise / number * float(np.linalg.norm(slope[1] - 2 * mean * slope[0]))
        variance = np.array([0.0, -error, error]) + square - mean**2
        spread = (self.high - self.low) * np.sqrt(np.clip(variance, 0.0, 0.25))
        yield Estimate("deviation", "", *map(float, spread))


@dataclass(frozen=True)
class Histogram(Part):
    """Numbers of users by bin.

    names: of the bins; values are the bins' numbers, or from 0 to 1.
    categories: whether values are numbers of bins.
    """

    names: tuple[str, ...]
    categories: bool

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.names)

    def vectors(self, x: np.ndarray) -> np.ndarray:
        places = x if self.categories else _steps(x, self.size)
        return np.asarray(places[:, None] == np.arange(self.size), dtype=np.float64)

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        for name, value in zip(self.names, sums):
            yield counted("histogram", name, float(value), noise)


@dataclass(frozen=True)
class Quantiles(Part):
    """Quantiles of a column of numbers.

    low, high: bounds of the column.
    size: number of steps.
    shares: of the users below.
    """

    low: float
    high: float
    size: int
    shares: tuple[float, ...]

    @cached_property
    def _factor(self) -> np.ndarray:
        """R, (size, size)."""
        coefficients = np.array(square_root(self.size).coefficients)
        age = np.subtract.outer(np.arange(self.size), np.arange(self.size))
        return np.where(age >= 0, coefficients[age], 0.0)

    @property
    def longest(self) -> float:  # type: ignore[override]
        return square_root(self.size).row_sum

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._factor.T[_steps(x, self.size)])

    def estimates(self, sums: np.ndarray, noise: float) -> Iterator[Estimate]:
        from scipy.linalg import solve_triangular
        from scipy.optimize import isotonic_regression

        # A = L R, so that L = A R^-1 = (R^-T A^T)^T.
        prefix = np.tri(self.size)
        left = solve_triangular(self._factor, prefix.T, lower=True, trans="T").T
        below = left @ sums
        rising = np.maximum(isotonic_regression(below).x, 0.0)
        edges = np.linspace(self.low, self.high, self.size + 1)
        for share in self.shares:
            at = share * rising[-1]
            value = float(np.interp(at, np.append(0.0, rising), edges))
            reached = noise * np.linalg.norm(left - share * left[-1], axis=1)
            beyond = below - share * below[-1]
            # A step stays unless its ends are surely on one side of the quantile.
            surely_below, surely_above = (
                beyond < -reached,
                np.append(False, (beyond > reached)[:-1]),
            )
            here = np.flatnonzero(~surely_below & ~surely_above)
            ends = (here[0], here[-1] + 1) if len(here) else (0, self.size)
            low, high = (float(edges[end]) for end in ends)
            yield Estimate("quantile", f"{share:g}", value, min(low, value), max(high, value))


def ratio(sums: np.ndarray, each: np.ndarray, noise: float) -> tuple[float, float, float]:
    """The share (each @ sums) / sum(sums), which is 0 to 1, and its interval: all m for which
    (each - m) @ sums, whose noise is known, is not far from 0 (Fieller).

    """
    number, first, k = float(sums.sum()), float(each @ sums), noise**2
    if number <= 2 * noise:  # too few users for the noise: nothing is known
        return 0.5, 0.0, 1.0
    a, b = number**2 - len(sums) * k, 2 * first * number - 2 * float(each.sum()) * k
    return between(first / number, a, b, first**2 - float(each @ each) * k)


def between(value: float, a: float, b: float, c: float) -> tuple[float, float, float]:
    """A value m and the ends of all m for which a m^2 - b m + c is not positive, for a > 0, of
    which it is one."""
    root = math.sqrt(max(0.0, b * b - 4 * a * c))
    low, high = (b - root) / (2 * a), (b + root) / (2 * a)
    return value, min(low, value), max(high, value)  # also where rounding says otherwise


def counted(name: str, of: str, value: float, noise: float) -> Estimate:
    """A number whose noise reaches so far."""
    return Estimate(name, of, value, value - noise, value + noise)


def _steps(x: np.ndarray, number: int) -> np.ndarray:
    """The step (n,) of each value from 0 to 1."""
    return np.minimum((x * number).astype(np.int64), number - 1)


class Placed(NamedTuple):
    """A part at its place.

    column: name of the column; empty: the users.
    place: number of the column.
    part: what it sums.
    here: its coordinates.
    """

    column: str
    place: int
    part: Part
    here: slice
