"""Blocks of contributions, and statistics of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Contributions:
    """A block of one silo's contributions. Blocks are streamed, so that memory does not grow with
    the number of units.

    units: (k,) int64: ids of the units.
    vectors: (k, size) on the training device. Local training gives float32: final minus starting
        parameters, not finite for a unit whose training diverged. The framework's clipping gives
        float64 within the bound.
    memory: final slots of the optimiser, (k, d) or (k, 1) each, if `Training.memory` is not None.
    """

    units: np.ndarray
    vectors: Tensor
    memory: Mapping[str, Tensor] = field(default_factory=dict)

    def rows(self) -> Iterator[Contributions]:
        """The same contributions in blocks of one."""
        for place in range(len(self.units)):
            own = slice(place, place + 1)
            memory = {name: slots[own] for name, slots in self.memory.items()}
            yield Contributions(self.units[own], self.vectors[own], memory)


@dataclass
class ContributionStats:
    """Statistics of a silo's contributions, for its own eyes: they are not private.

    units: number of contributions.
    nonfinite: number of contributions with NaN or infinity, which are left out.
    clipped: number of contributions whose norm exceeds the bound.
    norm_sum: sum of the finite norms before bounding.
    """

    units: int = 0
    nonfinite: int = 0
    clipped: int = 0
    norm_sum: float = 0.0

    @property
    def within(self) -> int:
        """Number of contributions whose norm does not exceed the bound."""
        return self.units - self.nonfinite - self.clipped

    @property
    def empty(self) -> str | None:
        """Why these contributions teach nothing; None if one of them is finite."""
        if not self.units:
            return "no records took part"
        if self.units == self.nonfinite:
            return "no contribution was finite; lower algo.local_lr or algo.global_lr"
        return None

    def __add__(self, other: ContributionStats, sign: int = 1) -> ContributionStats:
        return ContributionStats(
            self.units + sign * other.units,
            self.nonfinite + sign * other.nonfinite,
            self.clipped + sign * other.clipped,
            self.norm_sum + sign * other.norm_sum,
        )

    def __sub__(self, other: ContributionStats) -> ContributionStats:
        return self.__add__(other, -1)
