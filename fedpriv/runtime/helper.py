"""A helper: a participant without records, such as a server."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.aggregation.base import Aggregation
from fedpriv.parties.party import Memory, Party, PartySpec, WorkingParticipant, silo_name
from fedpriv.rounds.query import SUMMED, Broadcast, Query, SetUp, Summed
from fedpriv.rounds.weighting import Weighting


@dataclass(frozen=True)
class HelperSpec(PartySpec):
    """The description of a helper.

    name: name of the party.
    aggregation: the aggregation that it helps.
    silos: names of all silos.
    weighting: weights of the contributions.
    announces: whether it is the helper that tells silos who is in the sum.
    """

    name: str
    aggregation: Aggregation
    silos: tuple[str, ...]
    weighting: Weighting
    announces: bool

    def open(self, memory: Memory) -> HelperParticipant:
        return HelperParticipant(self)


class HelperParticipant(WorkingParticipant):
    """A running helper. Its task is the set-up, or a query with its broadcast."""

    def __init__(self, spec: HelperSpec) -> None:
        self.name = spec.name
        self.announces = spec.announces
        self.protocol = spec.aggregation.helper(spec.name, spec.silos, spec.weighting)

    def take_part(self, task: SetUp | tuple[Query, Broadcast]) -> Party:
        return self.working(
            self.protocol.setup(task) if isinstance(task, SetUp) else self._query(*task)
        )

    def _query(self, query: Query, broadcast: Broadcast) -> Party:
        total = yield from self.protocol.query(query, broadcast)
        if total is not None:
            query.covered(total)
            if query.stateful and self.announces:
                post = query.post(self.name, self.protocol.signer)
                yield from post.send(
                    SUMMED, dict.fromkeys(map(silo_name, query.invited), Summed(total.silos))
                )
        return total
