"""Real vectors as integers modulo R = 2^bits, so that masks can hide them perfectly and sums stay exact.

A vector x becomes round(x * 2^f) mod R. The precision f is public and as large as a public bound allows: with h parties
whose coordinates are all within `range`, h * (range * 2^f + 1/2) < R / 2, so that no sum can wrap. A coordinate outside
the range is an error; it is never wrapped and never clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fedpriv.errors import ConfigError, FedprivError, require

SIGNED = {32: np.int32, 64: np.int64}
RING = {32: np.uint32, 64: np.uint64}
"""The integers modulo R. Their addition wraps by itself, which is what makes these two sizes fast."""


class OutOfRange(FedprivError):
    """A coordinate of a party's vector lies outside the public range."""


def check_ring(bits: int, range: float) -> None:
    """Raise ConfigError unless `aggregation.bits` and `aggregation.range` can make a ring at all."""
    require(bits in RING, "aggregation.bits", bits, " or ".join(map(str, RING)))
    require(0 < range < math.inf, "aggregation.range", range, "a positive number")


def precision(bits: int, range: float, parties: int) -> int:
    """The largest f with parties * (range * 2^f + 1/2) < 2^bits / 2; computed exactly.

    Raises ConfigError when not even whole numbers fit.
    """
    check_ring(bits, range)
    room = Fraction(2 ** (bits - 1)) / parties - Fraction(1, 2)
    f = bits
    while f >= 0 and Fraction(range) * 2**f >= room:
        f -= 1
    if f < 0:
        raise ConfigError("aggregation.range", range, f"too large for {parties} parties and aggregation.bits={bits}")
    return f


@dataclass(frozen=True)
class FixedPoint:
    """Encoding of vectors whose coordinates are within `range`, for sums over at most `parties` of them."""

    bits: int
    range: float
    parties: int

    @property
    def precision(self) -> int:
        """Binary digits after the point, f."""
        return precision(self.bits, self.range, self.parties)

    @property
    def dtype(self) -> type[np.unsignedinteger]:
        """Unsigned integers modulo R."""
        return RING[self.bits]

    @property
    def rounding(self) -> float:
        """Largest distance of a decoded sum's coordinate from the sum of the real ones, half a unit for each party.
        Decoding to float64 may add half a unit in the last place of the result."""
        return self.parties * 2.0 ** -(self.precision + 1)

    def encode(self, vector: np.ndarray, owner: str) -> np.ndarray:
        """(d,) float64 to (d,) integers modulo R, to the nearest. Raises OutOfRange, naming `owner`."""
        if not (np.abs(vector) <= self.range).all():  # also refuses what is not a number
            raise OutOfRange(
                f"aggregation.range={self.range:g}: a coordinate of {owner}'s vector lies outside -range..range; "
                "raise it, or bound contributions and noise more tightly"
            )
        # Scaling by a power of two is exact, and so is the integer: it is below 2^63, a float64 above 2^53 is whole.
        return np.rint(np.ldexp(vector, self.precision)).astype(np.int64).astype(self.dtype)

    def decode(self, total: np.ndarray) -> np.ndarray:
        """(d,) integers modulo R to (d,) float64, the upper half of the ring as negative numbers."""
        return np.ldexp(total.view(SIGNED[self.bits]).astype(np.float64), -self.precision)
