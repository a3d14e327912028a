"""The Gaussian mechanism on clipped vectors. Every party adds a share of the noise.

Simulated noise is numpy's Gaussian. Noise that protects somebody is discrete and costs the same:
see `grid_noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.fixed_point import UNBOUNDED_RANGE, FixedPoint
from fedpriv.mechanisms.base import Mechanism, TrainingNoise, check_clip_and_noise
from fedpriv.mechanisms.discrete_sampling import Generator, discrete_gaussian
from fedpriv.mechanisms.grid_noise import MOST_NOISE, whole_steps
from fedpriv.util.pieces import pieces
from fedpriv.util.streams import SystemGenerator

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding

TAIL = 16.0
"""Standard deviations that bound a share when ranges are chosen. A Gaussian exceeds them with
probability 1e-57; the sum is then found out of range."""
NORMAL = 1.959963984540054
"""Standard deviations beyond which a Gaussian is with probability 0.05."""
EXACT = "integer noise, exactly sampled"
MOST_STEPS = 2**49
"""Grid steps that a share's deviation may span: within `TAIL` deviations every number of steps is a
float64."""


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Clip each contribution to L2 norm `clip`, add N(0, (noise_multiplier * clip * sensitivity)^2
    I).

    clip: C in every paper here, over the whole vector (all tensors together).
    noise_multiplier: sigma, the standard deviation of the whole noise over C.
    """

    # `field()`: no default, though the base class has values of the same names.
    clip: float = field()
    noise_multiplier: float = field()

    def __post_init__(self) -> None:
        check_clip_and_noise(self.clip, self.noise_multiplier)

    def share_deviation(self, shares: int, sensitivity: float = 1.0) -> float:
        """Standard deviation of one share; arguments as for `noise_share`."""
        return self.noise_multiplier * self.clip * sensitivity / math.sqrt(shares)

    def spread(self, shares: int) -> float:
        return NORMAL * self.share_deviation(1)

    def encoding(self, n_summed: int, bound: float, *, real: bool = False) -> FixedPoint | None:
        if not (real and self.noise_multiplier):
            return None
        return FixedPoint(64, UNBOUNDED_RANGE if bound == math.inf else bound, n_summed)

    def check_encoding(
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        if encoding is not None and self.noise_multiplier:
            steps = self.share_deviation(shares, sensitivity) / encoding.unit
            encoding.check_steps(steps, least, MOST_STEPS)

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        return (EXACT if real else "Gaussian noise drawn in floating point",)

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return TAIL * self.share_deviation(shares, sensitivity)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: Generator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        deviation = self.share_deviation(shares, sensitivity)
        if not isinstance(rng, SystemGenerator):
            return simulated_share(size, deviation, rng)
        return whole_share(size, deviation, rng, encoding) if deviation else np.zeros(size)

    def training_noise(self, sensitivity: float = 1.0) -> TrainingNoise:
        return TrainingNoise(self.share_deviation(1, sensitivity))

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        effective = min(self.noise_multiplier * math.sqrt(shares) / sensitivity, MOST_NOISE)
        return GaussianDpEvent(effective) if effective > 0 else NonPrivateDpEvent()


def simulated_share(size: int, deviation: float, rng: np.random.Generator) -> np.ndarray:
    """A noise share (size,) float64 from numpy's Gaussian."""
    share = np.empty(size)
    for piece in pieces(size):  # in order, so the numbers are those of one draw
        own = share[piece]
        rng.standard_normal(out=own)
        own *= deviation
    return share


def whole_share(
    size: int, deviation: float, rng: Generator, encoding: Encoding | None
) -> np.ndarray:
    """A noise share (size,) float64 in whole grid steps. It costs what Gaussian noise of standard
    deviation `deviation` costs."""
    if encoding is None:
        raise ValueError(
            "integer noise needs the grid of the messages; without one use `training_noise`"
        )
    steps = whole_steps(deviation / encoding.unit)
    return discrete_gaussian(steps, size, rng) * encoding.unit if steps else np.zeros(size)
