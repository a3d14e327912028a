"""Gaussian noise on gradients inside local training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.mechanisms.grid_noise import noised
from fedpriv.util.streams import SystemGenerator


@dataclass(frozen=True)
class TrainingNoise:
    """Noise on a mean of gradients.

    deviation: standard deviation of each coordinate; 0: no noise.
    """

    deviation: float

    def add(
        self, total: np.ndarray, rng: Generator, *, divisor: int = 1
    ) -> tuple[np.ndarray, np.ndarray | float]:
        """A sum (d,) float64, and the noise of total / divisor: a step follows total / divisor +
        noise.

        Seeded noise is a Gaussian number a coordinate, in order. Noise that protects somebody is
        added to the total here, where both are integers; the second result is then zero.
        """
        if not self.deviation:
            return total, 0.0
        if isinstance(rng, SystemGenerator):
            return noised(total, self.deviation * divisor, rng), 0.0
        return total, rng.standard_normal(len(total)) * self.deviation
