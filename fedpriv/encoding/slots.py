"""The encoding of private weighting: integers in slots, dithered.

What the grid costs. Contributions are truncated towards zero, which moves no norm up. The decrypted
total of a slot is

    X = C_LCM (Z + Q) + L,    Q = floor((V + D) / C_LCM),    L = (V + D) mod C_LCM,

where V is the weighted sum of all users times C_LCM, D the sum of the silos' dithers and Z the sum
of their integer noises. With one dither uniform on 0..C_LCM-1 that the observer does not know, L is
uniform whatever V is; and given L, data that differ in one user move Q by at most |V - V'| / C_LCM
+ 1 in every coordinate. So the release is Q + Z with a sensitivity of at most clip + sqrt(d) grid
steps. Z is a sum of floored Gaussians; as for rounded ones (see `fixed_point`) it has, up to a
total variation distance below 1e-250, the law of a floored sum of the declared Gaussian and
independent uniform errors, and since Q is an integer vector, floor(Q + noise) is a function of Q +
noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS, Encoding
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.errors import ConfigError

CLIPPING_ERROR = 1e-12
"""Largest relative error of a clipped coordinate in float64 arithmetic."""


@dataclass(frozen=True)
class SlotEncoding(Encoding):
    """Parameters and their noise in plaintexts."""

    layout: SlotLayout

    @property
    def unit(self) -> float:
        return 2.0**-self.layout.precision

    @property
    def rounding(self) -> float:
        # Truncation: a unit for each user, since its weights add up to one. A floored noise share
        # loses less than a unit, and the dither gives less than one back.
        return (self.layout.users + self.layout.silos) * self.unit

    def shift(self, size: int) -> float:
        return math.sqrt(size) * self.unit

    def too_coarse(self, steps: float, least: int = LEAST_STEPS) -> ConfigError:
        allowed = (
            f"too few digits: a noise share would span {steps:.2g} grid steps, at least {least} "
            "are needed"
        )
        return ConfigError("aggregation.precision", self.layout.precision, allowed)

    def too_fine(self, steps: float) -> ConfigError:
        allowed = f"too many digits: a noise share would span {steps:.2g} grid steps"
        return ConfigError("aggregation.precision", self.layout.precision, allowed)

    def coefficients(self, vectors: np.ndarray) -> np.ndarray:
        """Clipped contributions (k, d) float64 to int64 units, towards zero. Raises
        OutOfRangeError."""
        bound = self.layout.bound
        if (np.abs(vectors) <= bound * (1 + CLIPPING_ERROR)).all():
            vectors = np.clip(vectors, -bound, bound)
        return self.layout.truncate(vectors)

    def plaintexts(self, noise: np.ndarray, below: Callable[[int], int]) -> list[int]:
        """A silo's noise (d,) float64, floored to the grid and dithered, in slots: one integer a
        column, of any sign.

        below: draws the dither, uniform below its argument. Raises OutOfRangeError.
        """
        steps = np.floor(np.ldexp(noise, self.layout.precision)).astype(np.int64)
        return self.layout.pack(self.layout.dithered(steps, below))
