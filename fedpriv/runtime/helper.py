"""A party without records, such as a server, as a participant."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.aggregation.base import Aggregation
from fedpriv.parties.party import Memory, Party, PartySpec, WorkingParticipant, silo_name
from fedpriv.rounds.query import SUMMED, Broadcast, Query, SetUp, Summed
from fedpriv.rounds.weighting import Weighting


@dataclass(frozen=True)
class HelperSpec(PartySpec):
    """A helper of an aggregation.

    tells: whether it is the one that silos hear from.
    """

    name: str
    aggregation: Aggregation
    silos: tuple[str, ...]
    weighting: Weighting
    tells: bool

    def open(self, memory: Memory) -> HelperParticipant:
        return HelperParticipant(self)


class HelperParticipant(WorkingParticipant):
    """A helper where it lives. Its task is a query and what is sent down for it, or the set-up."""

    def __init__(self, spec: HelperSpec) -> None:
        self.name = spec.name
        self.tells = spec.tells
        self.protocol = spec.aggregation.helper(spec.name, spec.silos, spec.weighting)

    def take_part(self, task: SetUp | tuple[Query, Broadcast]) -> Party:
        return self.working(
            self.protocol.setup(task) if isinstance(task, SetUp) else self._query(*task)
        )

    def _query(self, query: Query, broadcast: Broadcast) -> Party:
        total = yield from self.protocol.query(query, broadcast)
        if total is not None:
            query.covered(total)
            if query.stateful and self.tells:
                post = query.post(self.name, self.protocol.signer)
                yield from post.send(
                    SUMMED, dict.fromkeys(map(silo_name, query.invited), Summed(total.silos))
                )
        return total
