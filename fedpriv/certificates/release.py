"""One noised release, as far as a protected unit moves it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedpriv.certificates.sampling import Sampling
from fedpriv.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Release:
    """A release in units of the distance that its noise is made for.

    name: of the query.
    moved: how far one unit moves it.
    hidden: variance of the noise that the observer does not know, over the noise that a share or
        the whole sum is made with.
    size: records of the batch that it is a sum over.
    records: those that the batch is drawn from.
    """

    name: str
    moved: float
    hidden: float
    size: int = 1
    records: int = 1

    @property
    def gap(self) -> float:
        """Distance of the means in standard deviations, at noise multiplier 1."""
        return self.moved / math.sqrt(self.hidden)

    def of(self, records: int) -> Release:
        """The same for so many records together."""
        return replace(self, moved=self.moved * records)

    def event(self, mechanism: Mechanism, sampling: Sampling) -> DpEvent:
        """What it costs."""
        whole = mechanism.event(sensitivity=self.moved, shares=self.hidden)
        return sampling.event(whole, self.size, self.records)
