"""What an algorithm works with at one silo."""

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

    index: its place among the silos.
    data: its training records.
    model: a module that any weights are loaded into.
    task: loss and metrics.
    plan: what is public.
    state: what the algorithm has let it remember; empty in the first round.
    """

    index: int
    data: SiloData
    model: nn.Module
    task: Task
    plan: Plan
    state: SiloState = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The silo's name as a party."""
        return silo_name(self.index)

    @property
    def streams(self) -> Streams:
        return self.plan.streams
