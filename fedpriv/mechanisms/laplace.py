"""The Laplace mechanism on vectors of bounded L1 norm: integer noise, sampled exactly.

Every silo adds the whole noise. So one silo whose noise an observer does not know hides the sum, or
the messages: all other noise is post-processing. A sum of S silos has sqrt(S) times the deviation
of one noise; for few numbers of few silos it is still less than a Gaussian's.

Why it costs what the Laplace mechanism on one number costs, whose event it has. Write T_k for the
trade-off function (J. Dong, A. Roth, W. Su, Gaussian differential privacy, JRSS B 2022) of Laplace
noise of scale t, and of the same moved by k.

- One coordinate. Discrete noise, P(j) proportional to exp(-|j| / t), that moves by k steps has a
  piecewise linear trade-off. With c = t ln cosh(1 / (2t)) <= 1 / (8t), its distribution function
  at j >= 0 is that of Laplace noise at j + 1/2 + c, and at j < 0 at j + 1/2 - c. So its vertices
  lie on T_k, or on T_(k + 2c) where the move crosses 0, and chords of a convex function lie above
  it: it is at least T_(k + 1/4), since t >= 1.
- Several. From one input to its neighbour, one coordinate changes after the other. Trade-offs chain
  (the lemma behind group privacy there), and T_a after T_b is T_(a + b), as for any log-concave
  noise. So a vector that moves by L1 distance k in d coordinates has at least T_(k + d/4).

`rounding` charges the quarter of a step. Privacy at delta = 0 needs none of this: it is k / t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.mechanisms.base import Mechanism, check_clip_and_noise
from fedpriv.mechanisms.discrete_sampling import MOST_SCALE, Generator, discrete_laplace
from fedpriv.mechanisms.gaussian import EXACT

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding

TAIL = 72.0
"""Scales that bound a share when ranges are chosen: half of them are exceeded with probability
2e-16."""
FARTHEST = math.log(20) / math.sqrt(2)
"""Deviations beyond which one Laplace number is with probability 0.05. Weighted sums of several,
which are nearer to a Gaussian, are within so many with a higher probability."""


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Clip each contribution to L1 norm `clip`, add integer multiples of the messages' grid step.
    Every silo adds the whole noise.

    clip: bound on a contribution's L1 norm.
    noise_multiplier: scale of one silo's noise over clip: 1 / epsilon.
    """

    clip: float = field()
    noise_multiplier: float = field()

    norm = 1

    def __post_init__(self) -> None:
        check_clip_and_noise(self.clip, self.noise_multiplier)

    def scale(self, sensitivity: float = 1.0) -> float:
        """Scale of the noise; argument as for `noise_share`."""
        return self.noise_multiplier * self.clip * sensitivity

    def spread(self, shares: int) -> float:
        return FARTHEST * math.sqrt(2 * shares) * self.scale()

    def encoding(self, n_summed: int, bound: float, *, real: bool = False) -> FixedPoint:
        return FixedPoint(64, bound, n_summed)

    def check_encoding(
        self,
        shares: int,
        encoding: Encoding | None,
        sensitivity: float = 1.0,
        *,
        least: int = LEAST_STEPS,
    ) -> None:
        if not isinstance(encoding, FixedPoint):
            raise self.refused("gaussian: laplace needs the grid of sums of real numbers")
        if self.noise_multiplier:
            encoding.check_steps(self.scale(sensitivity) / encoding.unit, least, MOST_SCALE)

    def assumptions(self, encoding: Encoding | None, *, real: bool) -> tuple[str, ...]:
        return (EXACT,)

    def rounding(self, encoding: Encoding | None, size: int) -> float:
        # In L1, `size` coordinates differ by at most sqrt(size) times as much as in L2.
        return 1.25 * math.sqrt(size) * super().rounding(encoding, size)

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return TAIL * self.scale(sensitivity)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: Generator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        if encoding is None:
            raise ValueError("integer noise needs the grid of the messages")
        steps = math.ceil(self.scale(sensitivity) / encoding.unit)
        return discrete_laplace(steps, size, rng) * encoding.unit if steps else np.zeros(size)

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import LaplaceDpEvent, NonPrivateDpEvent

        hidden = shares > 0 and self.noise_multiplier > 0
        return (
            LaplaceDpEvent(self.noise_multiplier / sensitivity) if hidden else NonPrivateDpEvent()
        )
