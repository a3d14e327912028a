"""Strategies of correlated noise: which earlier sums a round's message repeats, and how strongly.

Kairouz, McMahan, Song, Thakkar, Thakurta, Xu: Practical and private (deep) learning without
sampling or shuffling, ICML 2021; Choquette-Choo, McMahan, Rush, Thakurta: Multi-epoch matrix
factorization mechanisms for private machine learning, ICML 2023; Kalinin, Lampert: Banded square
root matrix factorization for differentially private model training, NeurIPS 2024.

x_t is the bounded sum of round t. The parties release y = C x + z with fresh Gaussian noise z in
each row. The estimates C^-1 y have errors C^-1 z, which cancel over rounds: a model, which adds up
all rounds, has far smaller errors than each round. C is lower triangular, so round t needs earlier
rounds only. Here C is a banded Toeplitz matrix: C[t, j] = c_(t - j).

No coefficient is negative. One unit then moves row t by at most the sum of c_(t - j) over its
rounds j, a public number.

>>> from fedpriv.mechanisms.strategy import optimised, prefix_error, square_root
>>> independent = Strategy((1.0,))
>>> one, other = (prefix_error(s, 100) for s in (independent, square_root(20)))
>>> one / other > 2, prefix_error(optimised(20, 100), 100) < other
(True, True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

GRID = 2.0**-20
"""Coefficients are whole multiples of it, so that machines whose searches end elsewhere in the last
digits have the same."""


@dataclass(frozen=True)
class Strategy:
    """A banded lower triangular Toeplitz matrix.

    coefficients: c_0, ..., c_(b-1) on the b bands; c_0 > 0, none negative. The sum of their squares
        is at most 1: one round's sum, in all messages that repeat it, moves no further than in a
        single message with weight 1.
    """

    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        c = self.coefficients
        legal = bool(c) and c[0] > 0 and min(c) >= 0 and math.fsum(x * x for x in c) <= 1
        if not legal:
            raise ValueError(f"{c} are no coefficients of a strategy")

    @property
    def bands(self) -> int:
        """The number of rounds whose messages contain one round's sum."""
        return len(self.coefficients)

    @property
    def row_sum(self) -> float:
        """The largest sum of a row."""
        return math.fsum(self.coefficients)

    def column_norm(self) -> float:
        """The distance that one round's sum moves all messages together, over its own."""
        return math.sqrt(math.fsum(c * c for c in self.coefficients))

    def weight(self, age: int) -> float:
        """The weight of a sum in the message that follows `age` rounds later."""
        return self.coefficients[age] if 0 <= age < self.bands else 0.0


@lru_cache(maxsize=64)
def square_root(bands: int) -> Strategy:
    """The square root of the matrix of prefix sums, cut to `bands` bands (Kalinin, Lampert)."""
    ages = np.arange(1, bands)
    return _normalised(np.cumprod(np.concatenate([[1.0], 1 - 1 / (2 * ages)])))


@lru_cache(maxsize=64)
def optimised(bands: int, rounds: int) -> Strategy:
    """The strategy of `bands` bands with the least mean squared error of prefix sums over `rounds`
    rounds, at the noise that one participation needs."""
    if bands == 1:
        return Strategy((1.0,))
    from scipy.optimize import minimize

    weights = np.arange(rounds, 0, -1.0)

    def objective(tail: np.ndarray) -> tuple[float, np.ndarray]:
        c = np.concatenate([[1.0], tail])
        inverse = _inverse(c, rounds)
        sums = np.cumsum(inverse)
        error = float(weights @ sums**2)
        square = float(c @ c)
        # d inverse_k / d c_i = -(inverse * inverse)_(k - i)
        slope = np.cumsum((2 * weights * sums)[::-1])[::-1]
        twice = np.convolve(inverse, inverse)[:rounds]
        own = -np.array([slope[i:] @ twice[: rounds - i] for i in range(1, len(c))])
        return math.log(error) + math.log(square), own / error + 2 * tail / square

    start = np.array(square_root(bands).coefficients)
    found = minimize(
        objective,
        start[1:] / start[0],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * (bands - 1),
        options={"maxiter": 2000, "ftol": 1e-14, "gtol": 1e-9},
    )
    return _normalised(np.concatenate([[1.0], found.x]))


def prefix_error(strategy: Strategy, rounds: int) -> float:
    """The root mean square error of prefix sums over `rounds` rounds, for unit noise."""
    sums = np.cumsum(_inverse(np.array(strategy.coefficients), rounds))
    return math.sqrt(float(np.arange(rounds, 0, -1.0) @ sums**2) / rounds)


def _inverse(c: np.ndarray, rounds: int) -> np.ndarray:
    """The first column (rounds,) of the inverse of the Toeplitz matrix with coefficients c."""
    from scipy.signal import lfilter

    impulse = np.zeros(rounds)
    impulse[0] = 1.0
    return np.asarray(lfilter([1.0], c, impulse))


def _normalised(c: np.ndarray) -> Strategy:
    # Rounded down, so that the sum of squares stays below 1.
    scaled = np.floor(c / math.sqrt(math.fsum(c * c)) / GRID) * GRID
    return Strategy(tuple(scaled.tolist()))
