"""The Gaussian mechanism on clipped vectors, its noise spread over the parties.

Simulated noise is numpy's Gaussian. Noise that protects somebody is discrete and costs the same:
see `grid_noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.fixed_point import UNBOUNDED_RANGE, FixedPoint
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.clipping import clipped_rows
from fedpriv.mechanisms.discrete_sampling import discrete_gaussian
from fedpriv.mechanisms.grid_noise import MOST_NOISE, noised, whole_steps
from fedpriv.util.streams import SystemGenerator

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding

TAIL = 16.0
"""Standard deviations that bound a share for choosing ranges; a Gaussian goes beyond with
probability 1e-57, and then the range is found exceeded."""
MOST_STEPS = 2**49
"""Grid steps that a share's deviation may span: within `TAIL` of them every number of steps is a
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
        require(
            0 < self.clip < math.inf,
            "algo.clip",
            self.clip,
            "a positive finite bound (mechanism=none to not clip)",
        )
        ok = 0 <= self.noise_multiplier < math.inf
        require(
            ok, "algo.noise_multiplier", self.noise_multiplier, "zero or a positive finite number"
        )

    def with_noise(self, noise_multiplier: float) -> Self:
        return replace(self, noise_multiplier=noise_multiplier)

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return clipped_rows(vectors, self.clip)

    def share_deviation(self, shares: int, sensitivity: float = 1.0) -> float:
        """Standard deviation of one share; arguments as for `noise_share`."""
        return self.noise_multiplier * self.clip * sensitivity / math.sqrt(shares)

    def real_encoding(self, n_summed: int, bound: float) -> FixedPoint | None:
        if not self.noise_multiplier:
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
        if encoding is None or not self.noise_multiplier:
            return
        steps = self.share_deviation(shares, sensitivity) / encoding.unit
        if steps < least:
            raise encoding.too_coarse(steps, least)
        if steps > MOST_STEPS:
            raise encoding.too_fine(steps)

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        return (
            "integer noise, exactly sampled" if real else "Gaussian noise drawn in floating point",
        )

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return TAIL * self.share_deviation(shares, sensitivity)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        deviation = self.share_deviation(shares, sensitivity)
        if not isinstance(rng, SystemGenerator):
            return rng.standard_normal(size) * deviation
        return (
            self.whole_share(size, deviation, rng, encoding=encoding)
            if deviation
            else np.zeros(size)
        )

    def whole_share(
        self,
        size: int,
        deviation: float,
        rng: np.random.Generator | SystemGenerator,
        *,
        encoding: Encoding | None,
    ) -> np.ndarray:
        """A noise share (size,) float64 of whole grid steps, worth Gaussian noise of standard
        deviation `deviation`."""
        if encoding is None:
            raise ValueError(
                "integer noise needs the grid that messages lie on; without one there is `noised`"
            )
        steps = whole_steps(deviation / encoding.unit)
        return discrete_gaussian(steps, size, rng) * encoding.unit if steps else np.zeros(size)

    def noised(
        self,
        total: np.ndarray,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        divisor: int = 1,
    ) -> tuple[np.ndarray, np.ndarray | float]:
        deviation = self.share_deviation(1, sensitivity)
        if isinstance(rng, SystemGenerator):
            return noised(total, deviation * divisor, rng), 0.0
        return total, rng.standard_normal(len(total)) * deviation

    def simulated_deviation(self, sensitivity: float = 1.0) -> float | None:
        return self.share_deviation(1, sensitivity)

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        effective = min(self.noise_multiplier * math.sqrt(shares) / sensitivity, MOST_NOISE)
        return GaussianDpEvent(effective) if effective > 0 else NonPrivateDpEvent()
