"""Mechanisms: how one unit's contribution is bounded and how the sum is noised.

The only place that knows a noise scale. Every party adds a share of the noise, so that nobody holds all of it; the
events made here describe exactly the noise that `noise_share` draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.streams import SystemGenerator


@dataclass(frozen=True)
class Mechanism(ABC):
    """Bounding and noising of contributions."""

    clip: ClassVar[float] = math.inf
    """Bound on one contribution's L2 norm."""
    noise_multiplier: ClassVar[float] = 0.0
    """Standard deviation of the whole noise, relative to the sensitivity."""

    @property
    def clips(self) -> bool:
        """Whether contributions are bounded at all."""
        return self.clip < math.inf

    @abstractmethod
    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Bound each row of (k, d). Returns (k, d) float64 rows and their (k,) norms before bounding."""

    @abstractmethod
    def noise_share(
        self, size: int, shares: int, rng: np.random.Generator | SystemGenerator, sensitivity: float = 1.0
    ) -> np.ndarray:
        """One party's noise, (size,) float64, such that `shares` independent shares add up to the whole noise.

        sensitivity: largest change of the sum that the noise is made for, in units of the bound on one contribution.
        """

    @abstractmethod
    def event(self, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        """What one release costs.

        sensitivity: largest change of the sum that one unit causes, in units of the bound on one contribution.
        shares: fraction of the noise shares that the observer does not know.
        """
