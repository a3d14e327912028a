"""No clipping and no noise, for the non-private baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from fedpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import TrainingNoise
    from fedpriv.mechanisms.discrete_sampling import Generator


@dataclass(frozen=True)
class NoMechanism(Mechanism):
    """Contributions pass unchanged; nothing is private."""

    def with_noise(self, noise_multiplier: float) -> Self:
        raise self.refused(f"gaussian or another with noise, to set it to {noise_multiplier:g}")

    def noise_bound(self, shares: int, sensitivity: float = 1.0) -> float:
        return 0.0

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: Generator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        return np.zeros(size)

    def training_noise(self, sensitivity: float = 1.0) -> TrainingNoise:
        from fedpriv.mechanisms.base import TrainingNoise

        return TrainingNoise(0.0)

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent()
