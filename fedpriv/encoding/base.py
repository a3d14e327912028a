"""Messages made of integers, as far as noise and sensitivities depend on them."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from fedpriv.errors import ConfigError

LEAST_STEPS = 8
"""Grid steps that the standard deviation of a noise share must span."""


class Encoding(ABC):
    """How real vectors become integers whose sum is exact; a frozen, picklable value that all
    parties agree on."""

    @property
    @abstractmethod
    def unit(self) -> float:
        """The grid step, 2^-f."""

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Largest distance of a decoded sum's coordinate from the sum of the real ones."""

    def nearest(self, vector: np.ndarray) -> np.ndarray:
        """`vector` float64 with every coordinate on the grid."""
        return np.rint(vector / self.unit) * self.unit

    @abstractmethod
    def shift(self, size: int) -> float:
        """How much further than without rounding, in L2 norm, the sum of (size,) signals moves at
        most when one unit's data change in every silo."""

    def clear(self, message: np.ndarray) -> np.ndarray:
        """One party's message in the clear as real numbers (size,) float64, up to a public
        constant: for who measures what messages tell. Raises ValueError for messages that are never
        sent in the clear."""
        raise ValueError(f"messages in {type(self).__name__} are not sent in the clear")

    @abstractmethod
    def too_coarse(self, steps: float, least: int = LEAST_STEPS) -> ConfigError:
        """The error when the standard deviation of a noise share spans only `steps` grid steps,
        less than `least`."""

    @abstractmethod
    def too_fine(self, steps: float) -> ConfigError:
        """The error when it spans `steps` grid steps, more than can be sampled or fit an
        integer.
        """
