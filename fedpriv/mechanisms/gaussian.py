"""The Gaussian mechanism on clipped vectors, its noise spread over the parties."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.streams import SystemGenerator


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Clip each contribution to L2 norm `clip`, add N(0, (noise_multiplier * clip * sensitivity)^2 I).

    clip: C in every paper here, over the whole vector (all tensors together).
    noise_multiplier: sigma, the standard deviation of the whole noise over C.
    """

    clip: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        require(
            0 < self.clip < math.inf, "algo.clip", self.clip, "a positive finite bound (mechanism=none to not clip)"
        )
        ok = 0 <= self.noise_multiplier < math.inf
        require(ok, "algo.noise_multiplier", self.noise_multiplier, "zero or a positive finite number")

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        exact = vectors.double()
        norms = exact.norm(dim=1)
        # A zero row stays zero, a non-finite row stays non-finite: the caller decides about those, clipping does not.
        scale = (self.clip / norms.clamp_min(self.clip)).unsqueeze(1)
        return exact * scale, norms

    def noise_share(
        self, size: int, shares: int, rng: np.random.Generator | SystemGenerator, sensitivity: float = 1.0
    ) -> np.ndarray:
        whole = self.noise_multiplier * self.clip * sensitivity
        return rng.standard_normal(size) * (whole / math.sqrt(shares))

    def event(self, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        effective = self.noise_multiplier * math.sqrt(shares) / sensitivity
        return GaussianDpEvent(effective) if effective > 0 else NonPrivateDpEvent()
