"""No clipping and no noise, for the non-private references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import ConfigError
from fedpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.util.streams import SystemGenerator


@dataclass(frozen=True)
class NoMechanism(Mechanism):
    """Contributions pass unchanged; nothing is private."""

    def with_noise(self, noise_multiplier: float) -> NoMechanism:
        raise ConfigError(
            "mechanism",
            "none",
            f"gaussian or another with noise, to set it to {noise_multiplier:g}",
        )

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        exact = vectors.double()
        return exact, exact.norm(dim=1)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        encoding: Encoding | None = None,
    ) -> np.ndarray:
        return np.zeros(size)

    def noised(
        self,
        total: np.ndarray,
        rng: np.random.Generator | SystemGenerator,
        *,
        sensitivity: float = 1.0,
        divisor: int = 1,
    ) -> tuple[np.ndarray, np.ndarray | float]:
        return total, 0.0

    def simulated_deviation(self, sensitivity: float = 1.0) -> float | None:
        return 0.0

    def event(self, *, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent()
