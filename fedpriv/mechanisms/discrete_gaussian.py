"""The discrete Gaussian mechanism: integer noise, sampled exactly, spread over the parties,
accounted as a Gaussian.

The same noise that `mechanism=gaussian` has where it protects somebody (see `grid_noise` for why it
costs what a Gaussian costs, sampled or not), in seeded runs too. No floating-point tail and no
low-order bits of a continuous sampler enter the release.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.util.streams import SystemGenerator


@dataclass(frozen=True)
class DiscreteGaussian(Gaussian):
    """Clip each contribution to `clip`, add integer multiples of the messages' grid step: clip *
    noise_multiplier is the standard deviation of the Gaussian that the whole noise is worth. A
    share's is larger by `ROUNDING` steps, added as variances, and rounded up to whole steps: by 1.7
    parts in 8 at most, and by 2e-5 of it from 50,000 steps on."""

    def encoding(self, n_summed: int, bound: float) -> FixedPoint:
        return FixedPoint(64, bound, n_summed)

    def check_inside_training(self) -> None:
        raise ConfigError(
            "mechanism",
            "discrete_gaussian",
            "gaussian: noise on gradients in training is real-valued",
        )

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
        return self.whole_share(
            size, self.share_deviation(shares, sensitivity), rng, encoding=encoding
        )
