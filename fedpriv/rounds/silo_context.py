"""The silo that an algorithm works with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedpriv.parties.party import silo_name
from fedpriv.rounds.query import SiloState

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task
    from fedpriv.rounds.plan import Plan
    from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Silo:
    """One silo as an algorithm sees it.

    index: position among the silos.
    data: training records.
    model: network into which the algorithm loads weights.
    task: loss and metrics.
    plan: public settings of the run.
    state: arrays that the algorithm stored in earlier rounds; empty in the first round.
    """

    index: int
    data: SiloData
    model: nn.Module
    task: Task
    plan: Plan
    state: SiloState = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the silo as a party."""
        return silo_name(self.index)

    @property
    def public_records(self) -> int:
        """The number of training records that the certificate takes as public. A neighbour of the
        file that lacks a record keeps it, so sampling rates and divisors are made of it."""
        return self.plan.federation.silo_records[self.index]

    @property
    def streams(self) -> Streams:
        return self.plan.streams
