"""Several parameters in one plaintext, as signed integers in slots of equal width.

A user's coordinate x becomes a = trunc(x 2^f). With C = lcm(1..N_max), n_su records of user u in
silo s and N_u in all, the weighted value C n_su / N_u * a is an integer. A slot's total over users
and silos, noise and dither included, is at most `total_bound`, below 2^(width - 1), so slots never
overlap. Weights of a user add up to at most one over the silos: the number of silos
multiplies the noise alone.

    C_LCM            `lcm`            P (precision)   2^-f, `unit`
    N_max            `n_max`          n               `key_bits` long
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fedpriv.encoding.fixed_point import OutOfRangeError
from fedpriv.errors import MisfitError, require

MAX_INTEGER_BITS = 62
"""Coordinates and noise, in units of 2^-f, stay below 2^62 and so in int64."""


WRONG = (
    "a message was altered, or is unbounded, or masks do not cancel; whose, the sum does not tell"
)


class SlotOverflowError(MisfitError):
    """A slot's total lies outside its public bound."""


def lcm_up_to(n_max: int) -> int:
    """Least common multiple of 1..n_max."""
    return math.lcm(*range(1, n_max + 1))


@dataclass(frozen=True)
class SlotLayout:
    """Sizes of slots and plaintexts.

    key_bits: length of n.
    n_max: cap on a user's records over all silos.
    precision: binary digits after the point, f.
    users: number of users in the sum.
    silos: number of silos in the sum.
    bound: largest absolute coordinate of a user's vector.
    noise: largest absolute coordinate of one silo's noise share, in the units of the vectors.

    Raises ConfigError when not even one parameter fits a plaintext.
    """

    key_bits: int
    n_max: int
    precision: int
    _: KW_ONLY
    users: int
    silos: int
    bound: float
    noise: float

    def __post_init__(self) -> None:
        require(
            0 <= self.precision <= MAX_INTEGER_BITS,
            "aggregation.precision",
            self.precision,
            "0 to 62 binary digits",
        )
        require(
            self.coordinate_bound >= 1,
            "aggregation.precision",
            self.precision,
            "bound * 2^precision must exceed 1",
        )
        largest = max(self.coordinate_bound, self.noise_bound)
        require(
            largest < 2**MAX_INTEGER_BITS,
            "aggregation.precision",
            self.precision,
            f"bound and noise times 2^precision are {largest.bit_length()} bits long; 62 is the "
            "most",
        )
        require(
            self.slots >= 1,
            "aggregation.n_max",
            self.n_max,
            "one slot needs width <= key_bits - 2, but width = 1 + bits(lcm(1..n_max) * (users "
            "* bound * 2^precision "
            f"+ silos * (noise * 2^precision + 2))) = 1 + bits(lcm of {self.lcm.bit_length()} "
            "bits * "
            f"{self.total_bound // self.lcm}) = {self.width} > {self.key_bits} - 2; lower n_max "
            "or precision, "
            "or take a longer key",
        )

    @cached_property
    def lcm(self) -> int:
        """C_LCM, which every N_u divides."""
        return lcm_up_to(self.n_max)

    @property
    def coordinate_bound(self) -> int:
        """Largest |a| of a truncated coordinate: the last integer below bound * 2^f. Strictly
        below, so that a bound of 1 and its negative take f + 1 bits together."""
        return math.ceil(Fraction(self.bound) * (1 << self.precision)) - 1

    @property
    def coordinate_bits(self) -> int:
        """Bits of a coordinate lifted by `coordinate_bound`, 0..2 coordinate_bound."""
        return (2 * self.coordinate_bound).bit_length()

    @property
    def noise_bound(self) -> int:
        """Largest |integer| of a silo's noise, floored to the grid."""
        return math.floor(Fraction(self.noise) * (1 << self.precision)) + 1

    @cached_property
    def total_bound(self) -> int:
        """Largest |slot total|. The last 1 is the dither, which is below one C_LCM for each
        silo.
        """
        return self.lcm * (self.users * self.coordinate_bound + self.silos * (self.noise_bound + 1))

    @property
    def width(self) -> int:
        """Bits of a slot with its sign: total_bound < 2^(width - 1)."""
        return self.total_bound.bit_length() + 1

    @property
    def slots(self) -> int:
        """Parameters in one plaintext: slots * width <= key_bits - 2."""
        return (self.key_bits - 2) // self.width

    def columns(self, dimension: int) -> int:
        """Ciphertexts that carry `dimension` parameters. Parameter k is in column k // slots, slot
        k % slots."""
        return -(-dimension // self.slots)

    def truncate(self, vectors: np.ndarray) -> np.ndarray:
        """Float64 coordinates to int64 units of 2^-f, towards zero so that no norm grows. Any
        shape. Off by less than one unit, or by one exactly for a coordinate of +-bound. Raises
        OutOfRangeError beyond `bound`, and for what is not a number."""
        if not (np.abs(vectors) <= self.bound).all():
            raise OutOfRangeError(
                f"a coordinate lies outside -{self.bound:g}..{self.bound:g}; clip before encoding"
            )
        units: np.ndarray = np.clip(
            truncate(vectors, self.precision), -self.coordinate_bound, self.coordinate_bound
        )
        return units

    def dithered(
        self, noise: np.ndarray, below: Callable[[int], int] = secrets.randbelow
    ) -> list[int]:
        """Plaintext noise of one silo, (d,) Python integers: C_LCM * noise + uniform on 0..C_LCM-1.

        noise: (d,) int64, real noise floored to units of 2^-f.
        below: draws the uniform part. It hides the total modulo C_LCM, which would reveal the
            users' counts.

        Raises OutOfRangeError.
        """
        if (noise > self.noise_bound).any() or (noise < -self.noise_bound).any():
            raise OutOfRangeError(f"noise beyond {self.noise_bound} units")
        return [self.lcm * value + below(self.lcm) for value in noise.tolist()]

    def pack(self, values: Sequence[int]) -> list[int]:
        """Signed integers, one a parameter, to plaintexts, `columns` of them; these may be
        negative. Raises SlotOverflowError."""
        self._check(values)
        shifts = range(0, self.slots * self.width, self.width)
        return [
            sum(
                value << shift
                for value, shift in zip(values[start : start + self.slots], shifts, strict=False)
            )
            for start in range(0, len(values), self.slots)
        ]

    def unpack(self, plaintexts: Sequence[int], n: int, dimension: int) -> list[int]:
        """Slot totals, (dimension,) signed integers, from decrypted plaintexts 0..n-1. Raises
        SlotOverflowError when one lies outside its bound, as it most likely does after a missing
        message or a wrong key."""
        half = 1 << (self.width - 1)
        mask = (1 << self.width) - 1
        values = []
        for index, plaintext in enumerate(plaintexts):
            used = min(self.slots, dimension - index * self.slots)
            shifts = range(0, used * self.width, self.width)
            signed = plaintext - n if 2 * plaintext > n else plaintext
            lifted = signed + sum(
                half << shift for shift in shifts
            )  # every slot now zero or more, so none borrows
            if lifted < 0 or lifted >> (used * self.width):
                raise SlotOverflowError(
                    f"ciphertext {index} of the sum holds more than its {used} slots: {WRONG}"
                )
            values += [(lifted >> shift & mask) - half for shift in shifts]
        self._check(values)
        return values

    def decode(self, values: Sequence[int]) -> np.ndarray:
        """Slot totals to (d,) float64, each the real number nearest to total / (C_LCM 2^f)."""
        scale = self.lcm << self.precision
        return np.array(
            [value / scale for value in values], dtype=np.float64
        )  # of Python integers: correctly rounded

    def _check(self, values: Sequence[int]) -> None:
        if values and max(max(values), -min(values)) > self.total_bound:
            raise SlotOverflowError(f"a slot total lies outside its public bound: {WRONG}")


def truncate(values: np.ndarray, precision: int) -> np.ndarray:
    """trunc(values * 2^precision), towards zero, exactly, as int64 of the same shape. Raises
    OutOfRangeError from 2^62 on."""
    scaled = np.trunc(np.ldexp(values.astype(np.float64), precision))
    if not (np.abs(scaled) < 2.0**MAX_INTEGER_BITS).all():
        raise OutOfRangeError(f"a coordinate times 2^{precision} is not below 2^{MAX_INTEGER_BITS}")
    return scaled.astype(np.int64)
