"""Vectors as levels whose sum is a count: the encoding of the shuffle model.

A. Cheu, M. Joseph, J. Mao, B. Peng, Shuffle private stochastic convex optimization (ICLR 2022), as
A. Lowy, A. Ghafelebashi, M. Razaviyayn recall it (Private non-convex federated learning without a
trusted server, Algorithms 4 and 5, P_1D and P_vec). A coordinate x of a vector with norm at most L
is shifted and scaled to y = (x + L) g / (2 L), in [0, g], and rounded to one of the integers beside
it, at random, so that it is right on average: that many of g bits are ones. b bits more are ones
with probability 1/4 each. Of the bits that belong to a coordinate a shuffler leaves nothing but how
many are ones.

Symbols: L -> clip, g -> levels, n -> all parties' units, b -> trials / units (a silo draws the sum
of its units' noise bits at once, which has the same distribution). Every unit of every party
counts: one that contributes nothing sends the zero vector, whose level g / 2 is no chance, so that
the number of contributions stays hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS, Encoding
from fedpriv.errors import AggregationAbortedError, ConfigError, require

MAX_COUNT = 2**52
"""Largest count of ones; int64 and float64 hold it exactly."""
TILE = 2**14
"""Coordinates per step of rounding, few enough for the processor's cache."""
SLACK = 1e-9
"""How far a coordinate may lie beyond the bound because of rounding, relatively."""

Coins = Callable[[np.ndarray, slice], np.ndarray]
"""A function of positions of vectors (k,) and a slice of c coordinates; returns (k, c) uniform
numbers from [0, 1)."""


@dataclass(frozen=True)
class Levels(Encoding):
    """Vectors as numbers of ones among bits.

    levels: bits of a coordinate, an even number.
    clip: bound on a contribution's L2 norm.
    trials: noise bits of one party, a multiple of four, so that their mean is whole. Encodings that
        differ only here are equal.
    parties: number of parties in the sum.
    """

    levels: int
    clip: float
    trials: int = field(compare=False)
    parties: int

    def __post_init__(self) -> None:
        fits = 2 <= self.levels <= 2**40 and self.levels % 2 == 0
        require(fits, "mechanism.levels", self.levels, "an even number from 2 to 2^40")
        bits = self.parties * self.trials
        require(
            bits <= MAX_COUNT // 2,
            "algo.noise_multiplier",
            f"{bits} noise bits a coordinate",
            "at most 2^51 of them",
        )

    @property
    def unit(self) -> float:
        return 2 * self.clip / self.levels

    rounding = math.inf
    """A unit for each contribution, and how many there are is not known here."""

    def shift(self, size: int) -> float:
        # With the same random numbers for a record and its replacement each coordinate moves by
        # less than one level more. A record has one silo.
        return math.sqrt(size) * self.unit

    def clear(self, message: np.ndarray) -> np.ndarray:
        real: np.ndarray = message * self.unit
        return real

    def too_coarse(self, steps: float, least: int = LEAST_STEPS) -> ConfigError:
        return ConfigError(
            "mechanism.levels", self.levels, f"more: noise would span {steps:.2g} levels"
        )

    def too_fine(self, steps: float) -> ConfigError:
        return ConfigError(
            "mechanism.levels", self.levels, f"fewer: noise would span {steps:.2g} levels"
        )

    def most(self, units: int) -> int:
        """Most ones of a coordinate in one party's message about `units` units. Raises ConfigError
        if the sum over all parties could exceed `MAX_COUNT`."""
        ones = units * self.levels + self.trials
        require(
            ones * self.parties <= MAX_COUNT,
            "mechanism.levels",
            self.levels,
            f"fewer: {units} units do not fit 2^52",
        )
        return ones

    def counts(self, vectors: np.ndarray, coins: Coins) -> np.ndarray:
        """The sum of the levels of `vectors` (k, d) float64: (d,) int64. It takes memory for `TILE`
        coordinates. Raises OutsideError for a coordinate beyond the bound."""
        total = np.zeros(vectors.shape[1], dtype=np.int64)
        for rows, columns in tiles(*vectors.shape):
            levels = self._scaled(vectors[rows, columns])
            levels += coins(np.arange(rows.start, rows.stop), columns)
            np.floor(levels, out=levels)
            np.clip(levels, 0, self.levels, out=levels)
            total[columns] += levels.sum(axis=0).astype(np.int64)
        return total

    def _scaled(self, vectors: np.ndarray) -> np.ndarray:
        """Real-valued levels from 0 to `levels`."""
        scaled: np.ndarray = vectors * (1 / self.unit)
        scaled += self.levels / 2
        beyond = self.levels * SLACK
        if not (
            scaled.min(initial=0.0) >= -beyond and scaled.max(initial=0.0) <= self.levels + beyond
        ):
            raise OutsideError(
                f"algo.clip={self.clip:g}: a contribution is longer, or not a number"
            )
        return scaled

    def noise_counts(self, noise: np.ndarray) -> np.ndarray:
        """A party's noise share (d,) float64 as the number of ones among its noise bits, (d,)
        int64."""
        return np.rint(noise / self.unit).astype(np.int64) + self.trials // 4

    def decode(self, total: np.ndarray, units: int) -> np.ndarray:
        """An unbiased estimate of the sum of all contributions, (d,) float64, from all parties'
        ones (d,) int64.

        units: of each party.
        """
        middle = self.parties * (units * (self.levels // 2) + self.trials // 4)
        decoded: np.ndarray = (total - middle).astype(np.float64) * self.unit
        return decoded


class OutsideError(AggregationAbortedError):
    """A contribution lies outside its bound and has no level."""


def tiles(rows: int, columns: int) -> list[tuple[slice, slice]]:
    """Slices that cut a table into parts of at most `TILE` entries, whole rows where they fit."""
    wide = min(columns, TILE)
    high = max(1, TILE // max(wide, 1))
    return [
        (slice(row, min(row + high, rows)), slice(column, min(column + wide, columns)))
        for row in range(0, rows, high)
        for column in range(0, columns, wide)
    ]
