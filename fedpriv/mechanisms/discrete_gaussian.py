"""The discrete Gaussian mechanism: integer noise, sampled exactly, spread over the parties.

Canonne, Kamath, Steinke, The discrete Gaussian for differential privacy (NeurIPS 2020): noise with probability
proportional to exp(-k^2 / (2 s^2)) on the integers satisfies the zCDP of the Gaussian with the same s. Kairouz, Liu,
Steinke, The distributed discrete Gaussian mechanism for federated learning with secure aggregation (ICML 2021): a sum
of n independent ones is not one itself, but differs so little that for d coordinates and L2 sensitivity D the sum of n
shares satisfies (e^2 / 2)-zCDP with

    e <= D / (sqrt(n) s) + sqrt(d) tau,     tau = 10 * sum over k = 1 .. n - 1 of exp(-2 pi^2 s^2 k / (k + 1)).

A share spans at least `LEAST_STEPS` grid steps, so that tau stays below 1e-270 * n and vanishes in float64.

No floating-point tail and no low-order bits of a continuous sampler enter the release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_sampling import MAX_SIGMA, discrete_gaussian
from fedpriv.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.streams import SystemGenerator


@dataclass(frozen=True)
class DiscreteGaussian(Gaussian):
    """Clip each contribution to `clip`, add integer multiples of the messages' grid step: clip * noise_multiplier is
    the standard deviation of the whole noise, each share rounded up to whole steps."""

    def encoding(self, n_summed: int, bound: float) -> FixedPoint:
        return FixedPoint(64, bound, n_summed)

    def check_inside_training(self) -> None:
        raise ConfigError("mechanism", "discrete_gaussian", "gaussian: noise on gradients in training is real-valued")

    def check_encoding(self, shares: int, encoding: Encoding | None, sensitivity: float = 1.0) -> None:
        super().check_encoding(shares, encoding, sensitivity)
        if encoding is None:
            return
        steps = self.share_deviation(shares, sensitivity) / encoding.unit
        if steps > MAX_SIGMA:
            raise encoding.too_fine(steps)

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        return ("integer noise, exactly sampled",)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        if encoding is None:
            raise ValueError("discrete noise needs the grid that messages lie on")
        steps = math.ceil(self.share_deviation(shares, sensitivity) / encoding.unit)
        return discrete_gaussian(steps, size, rng) * encoding.unit if steps else np.zeros(size)

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent, ZCDpEvent

        effective = self.noise_multiplier * math.sqrt(shares) / sensitivity
        return ZCDpEvent(0.5 / effective**2) if effective > 0 else NonPrivateDpEvent()
