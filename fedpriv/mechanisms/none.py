"""No clipping and no noise, for the non-private references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    import torch
    from dp_accounting import DpEvent

    from fedpriv.aggregation.fixed_point import Grid
    from fedpriv.streams import SystemGenerator


@dataclass(frozen=True)
class NoMechanism(Mechanism):
    """Contributions pass unchanged; nothing is private."""

    def bound(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        exact = vectors.double()
        return exact, exact.norm(dim=1)

    def noise_share(
        self,
        size: int,
        shares: int,
        rng: np.random.Generator | SystemGenerator,
        sensitivity: float = 1.0,
        code: Grid | None = None,
    ) -> np.ndarray:
        return np.zeros(size)

    def event(self, sensitivity: float = 1.0, shares: float = 1.0) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent

        return NonPrivateDpEvent()
