"""One noised release, as one protected unit affects it."""

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
    """A release, in units of the sensitivity that its noise is sized for.

    name: name of the query.
    moved: distance by which one unit moves the release.
    hidden: variance of the noise that the observer does not know, divided by the mechanism's
        variance.
    size: number of records in the batch.
    records: number of records that the batch is drawn from.
    """

    name: str
    moved: float
    hidden: float
    size: int = 1
    records: int = 1

    @property
    def gap(self) -> float:
        """Distance of neighbours' means in standard deviations, at noise multiplier 1."""
        return self.moved / math.sqrt(self.hidden)

    def of(self, records: int) -> Release:
        """The release for a group of `records` records."""
        return replace(self, moved=self.moved * records)

    def event(self, mechanism: Mechanism, sampling: Sampling) -> DpEvent:
        """The event of the release."""
        whole = mechanism.event(sensitivity=self.moved, shares=self.hidden)
        return sampling.event(whole, self.size, self.records)
