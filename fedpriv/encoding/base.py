"""Encodings: real vectors as integers whose sum is exact.

>>> import numpy as np
>>> from fedpriv.encoding.fixed_point import FixedPoint
>>> encoding = FixedPoint(bits=32, bound=10.0, parties=3)
>>> messages = [encoding.encode(np.array([x]), "silo") for x in (1.5, -4.0, 0.25)]
>>> encoding.decode(sum(messages))
array([-2.25])
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedpriv.errors import ConfigError

LEAST_STEPS = 8
"""Fewest grid steps that the standard deviation of a noise share must span."""


class Encoding(ABC):
    """How real vectors become integers; a frozen, picklable value that all parties agree on."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The grid step, 2^-f."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Largest error of a coordinate of a decoded sum."""

    def nearest(self, vector: np.ndarray) -> np.ndarray:
        """`vector` float64, every coordinate rounded to the grid."""
        return np.rint(vector / self.unit) * self.unit

    @abstractmethod
    def shift(self, size: int) -> float:
        """What rounding adds to the sensitivity: in L2 norm, how much further the sum of (size,)
        signals can move when one unit's data change in every silo."""

    def clear(self, message: np.ndarray) -> np.ndarray:
        """One party's message in the clear as real numbers (size,) float64, up to a public
        constant. Audits use it. Raises ValueError for messages that are never sent in the clear."""
        raise ValueError(f"messages in {type(self).__name__} are not sent in the clear")

    def check_steps(self, steps: float, least: int, most: int) -> None:
        """Raise ConfigError unless a noise share spans `least` to `most` grid steps."""
        if steps < least:
            raise self.too_coarse(steps, least)
        if steps > most:
            raise self.too_fine(steps)

    @abstractmethod
    def too_coarse(self, steps: float, least: int = LEAST_STEPS) -> ConfigError:
        """The error for a noise share whose standard deviation spans only `steps` grid steps, fewer
        than `least`."""

    @abstractmethod
    def too_fine(self, steps: float) -> ConfigError:
        """The error for a noise share that spans `steps` grid steps, more than can be sampled or
        fit an integer."""
