"""Real vectors as integers modulo R = 2^bits: masks hide them perfectly, and sums stay exact.

A silo's message is rint(signal * 2^f) + rint(noise * 2^f) mod R. The precision f is public and as
large as a public bound allows. For h parties with coordinates within `bound`, h * (bound * 2^f + 1)
stays below R / 2, so that no sum wraps, and below 2^53, so that float64 holds every message and
every sum exactly. A coordinate beyond the bound is an error. It is never wrapped and never
clipped.

What rounding costs. Signal and noise are rounded apart. Data that differ in one unit move each
silo's rounded signal by at most one grid step more, in every coordinate, than the signal itself:
`FixedPoint.shift` bounds that for the sum, and the algorithms add it to the sensitivity. The sum of
rounded Gaussian shares has the distribution, on the grid, of the declared Gaussian plus independent
uniform errors of half a step each, up to a total variation distance below 2^54 exp(-pi^2 s^2) per
coordinate for shares whose standard deviation spans s steps (Poisson summation): with s >=
`LEAST_STEPS` that is below 1e-250. Errors added afterwards take nothing away from the Gaussian's
guarantee. That is for a true Gaussian; noise that protects somebody consists of whole steps already
(`fedpriv.mechanisms.grid_noise`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS, Encoding
from fedpriv.errors import AggregationAbortedError, ConfigError, MisfitError, require
from fedpriv.util.pieces import pieces

SIGNED: dict[int, type[np.signedinteger]] = {32: np.int32, 64: np.int64}
RING: dict[int, type[np.unsignedinteger]] = {32: np.uint32, 64: np.uint64}
"""The integers modulo R. Hardware addition wraps for these two sizes, so sums are fast."""

UNBOUNDED_RANGE = 1e4
"""Range for methods without a bound on messages, such as federated averaging; far above any update
of a training that works."""

EXACT_BITS = 53
"""Integers up to 2^53 are float64s."""


class OutOfRangeError(AggregationAbortedError):
    """A coordinate of a party's own vector lies outside its public range."""


class ImpossibleSumError(MisfitError):
    """A sum that honest parties cannot reach."""


def check_ring(bits: object, bound: float | None) -> None:
    """Raise ConfigError unless `aggregation.bits` and `aggregation.range` describe a ring."""
    require(bits in RING, "aggregation.bits", bits, " or ".join(map(str, RING)))
    require(
        bound is None or 0 < bound < math.inf,
        "aggregation.range",
        bound,
        "a positive number, or null",
    )


def precision(bits: int, bound: float, parties: int) -> int:
    """The largest f <= bits with parties * (bound * 2^f + 1) < min(2^(bits - 1), 2^53); computed
    exactly.

    Raises ConfigError when not even whole numbers fit.
    """
    check_ring(bits, bound)
    room = Fraction(2 ** min(bits - 1, EXACT_BITS)) / parties - 1
    f = bits
    while f >= 0 and Fraction(bound) * 2**f >= room:
        f -= 1
    if f < 0:
        raise ConfigError(
            "aggregation.range",
            bound,
            f"too large for {parties} parties and aggregation.bits={bits}",
        )
    return f


@dataclass(frozen=True)
class FixedPoint(Encoding):
    """Vectors on a binary grid.

    bits: R = 2^bits.
    bound: largest absolute coordinate of a vector.
    parties: most vectors in a sum.
    """

    bits: int
    bound: float
    parties: int

    @cached_property
    def precision(self) -> int:
        """Binary digits after the point, f."""
        return precision(self.bits, self.bound, self.parties)

    @property
    def unit(self) -> float:
        return 2.0**-self.precision

    @property
    def dtype(self) -> type[np.unsignedinteger]:
        """Unsigned integers modulo R."""
        return RING[self.bits]

    @property
    def rounding(self) -> float:
        # Each party adds half a step for its signal and half a step for its noise.
        return self.parties * self.unit

    def shift(self, size: int) -> float:
        return self.parties * math.sqrt(size) * self.unit

    def clear(self, message: np.ndarray) -> np.ndarray:
        return self.decode(message)

    def too_coarse(self, steps: float, least: int = LEAST_STEPS) -> ConfigError:
        allowed = (
            f"too few for range {self.bound:g}: a noise share would span {steps:.2g} grid steps, "
            "at least "
        )
        return ConfigError("aggregation.bits", self.bits, f"{allowed}{least} are needed")

    def too_fine(self, steps: float) -> ConfigError:
        allowed = (
            f"null, or a range that the noise fits in: a noise share would span {steps:.2g} grid "
            "steps"
        )
        return ConfigError("aggregation.range", self.bound, allowed)

    def encode(self, signal: np.ndarray, owner: str, noise: np.ndarray | None = None) -> np.ndarray:
        """Round (d,) float64, and noise of the same shape, to (d,) integers modulo R.

        Raises OutOfRangeError that names `owner`.
        """
        encoded = np.empty(signal.shape, self.dtype)
        for piece in pieces(len(signal)):
            own = None if noise is None else noise[piece]
            encoded[piece] = self._encoded(signal[piece], owner, own)
        return encoded

    def _encoded(self, signal: np.ndarray, owner: str, noise: np.ndarray | None) -> np.ndarray:
        """The same for a piece."""
        whole = signal if noise is None else signal + noise
        smallest = whole.min(initial=0.0)
        largest = whole.max(initial=0.0)
        if not (
            -self.bound <= smallest and largest <= self.bound
        ):  # also refuses what is not a number
            raise OutOfRangeError(
                f"aggregation.range={self.bound:g}: a coordinate of {owner}'s vector lies "
                "outside -range..range; "
                "raise it, or bound contributions and noise more tightly"
            )
        # Scaling by a power of two is exact, and so is the integer: the precision keeps it below
        # 2^53.
        total: np.ndarray = np.rint(np.ldexp(signal, self.precision))
        if noise is not None:
            total += np.rint(np.ldexp(noise, self.precision))
        return self._in_ring(total)

    def whole(self, noise: np.ndarray) -> np.ndarray:
        """The integers modulo R, (d,), of noise on the grid, or of a sum of such noise."""
        return self._in_ring(np.rint(np.ldexp(noise, self.precision)))

    def _in_ring(self, steps: np.ndarray) -> np.ndarray:
        return steps.astype(np.int64).view(np.uint64).astype(self.dtype, copy=False)

    def reached_by(self, parties: int, total: np.ndarray) -> bool:
        """Whether `total` (d,), modulo R, can be the sum of this many honest messages."""
        signed = total.view(SIGNED[self.bits])
        most = int(parties * (self.bound * 2**self.precision + 1))
        return bool(-most <= signed.min(initial=0) and signed.max(initial=0) <= most)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """The sum (d,) of messages modulo R as (d,) float64. The upper half of the ring are
        negative numbers.

        Raises ImpossibleSumError for a sum that `parties` honest messages cannot reach.
        """
        if not self.reached_by(self.parties, total):
            raise ImpossibleSumError(
                f"a coordinate of the sum lies beyond {self.parties} times {self.bound:g}: a "
                "message was altered, or "
                "masks do not cancel; whose, the sum does not tell"
            )
        decoded = total.view(SIGNED[self.bits]).astype(np.float64)
        return np.ldexp(decoded, -self.precision, out=decoded)
