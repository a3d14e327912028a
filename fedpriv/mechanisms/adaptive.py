"""Gaussian noise on vectors whose bound follows a quantile of their norms.

Andrew, Thakkar, McMahan, Ramaswamy: Differentially private learning with adaptive clipping, NeurIPS
2021, Algorithm 1. Symbols: gamma -> quantile, C^0 -> clip, C^t -> limit, eta_C -> rate / sqrt(t), z
-> noise_multiplier, z_Delta -> z / sqrt(1 - share), 2 sigma_b -> z / sqrt(share). So the paper's
z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2) holds for every share.

A contribution is the clipped vector in units of the round's bound and one coordinate more, the
mark: whether the vector was within the bound. Both together have an L2 norm of at most `clip`, and
the release is that of `Gaussian`: the same noise, the same event. The round's bound is no part of
the sensitivity: whatever bound comes with the broadcast, a silo's messages move as little.

Where we differ from the paper: the mark is centred at the quantile, so that the bound stays there
however many units contribute; a step falls with the square root of the round, so that twenty rounds
find a bound that is decades away; the noisy share of vectors within the bound is cut to 0 to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.mechanisms.base import TrainingNoise, clipped_rows
from fedpriv.mechanisms.gaussian import Gaussian

if TYPE_CHECKING:
    import numpy as np
    import torch

FARTHEST = 1e9
"""Factor within which bounds stay around the first one. Vectors in units of a bound then have no
infinite coordinate."""


@dataclass(frozen=True)
class Adaptive(Gaussian):
    """Clip each contribution to the round's bound; the noise is that of `Gaussian`.

    clip: bound of the first round; every bounded contribution, with its mark, has at most this L2
        norm in a message.
    noise_multiplier: standard deviation of the whole noise over clip, for vectors and marks.
    quantile: share of the vectors that the bound shall leave as they are.
    rate: step of the logarithm of the bound in round 1; that of round t is rate / sqrt(t).
    share: part of a contribution's squared length that is the mark's, and so of the budget in zCDP.
    now: bound of the round; None: that of the first.
    """

    clip: float = field()
    noise_multiplier: float = field()
    quantile: float = field()
    rate: float = field()
    share: float = field()
    now: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("quantile", "share"):
            value = getattr(self, key)
            require(0 < value < 1, f"mechanism.{key}", value, "a number between 0 and 1")
        allowed = "a positive finite number"
        require(0 < self.rate < math.inf, "mechanism.rate", self.rate, allowed)

    marks = 1

    @property
    def limit(self) -> float:
        return self.clip if self.now is None else self.now

    @property
    def limits(self) -> tuple[float, float]:
        return self.clip / FARTHEST, self.clip * FARTHEST

    def at(self, limit: float) -> Adaptive:
        return replace(self, now=limit)

    @property
    def _scale(self) -> float:
        """The length of a vector in a message, over its own."""
        return math.sqrt(1 - self.share) * self.clip / self.limit

    @property
    def _mark(self) -> float:
        """The mark of a vector within the bound, over 1 - quantile; beyond it, over -quantile."""
        largest = max(self.quantile, 1 - self.quantile)
        return math.sqrt(self.share) * self.clip / largest

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        rows, norms = clipped_rows(vectors, self.limit)
        marks = ((norms <= self.limit).double() - self.quantile) * self._mark
        return torch.cat([rows.mul_(self._scale), marks.unsqueeze(1)], dim=1), norms

    def marked(self, total: torch.Tensor, within: float, beyond: float) -> torch.Tensor:
        import torch

        mark = (within * (1 - self.quantile) - beyond * self.quantile) * self._mark
        return torch.cat([total.double() * self._scale, total.new_tensor([mark]).double()])

    def training_noise(self, sensitivity: float = 1.0) -> TrainingNoise:
        return TrainingNoise(self.share_deviation(1, sensitivity) / self._scale)

    def read(self, total: np.ndarray, units: float, round: int) -> tuple[np.ndarray, float]:
        off = float(total[-1]) / (self._mark * units)
        off = min(max(off, -self.quantile), 1 - self.quantile)
        low, high = self.limits
        following = self.limit * math.exp(-self.rate / math.sqrt(round) * off)
        return total[:-1] / self._scale, min(max(following, low), high)
