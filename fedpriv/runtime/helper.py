"""A helper: a participant without records, such as a server."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedpriv.crypto.key_files import KeyFiles
from fedpriv.crypto.roster import Identity
from fedpriv.errors import RefusedError
from fedpriv.parties.party import Memory, Party, PartySpec, WorkingParticipant, silo_name
from fedpriv.rounds.query import SUMMED, Broadcast, Query, SetUp, Summed
from fedpriv.rounds.tasks import QueryTask, SetUpTask
from fedpriv.runtime.run_settings import RunSettings


@dataclass(frozen=True)
class HelperSpec(PartySpec):
    """The description of a helper.

    name: name of the party.
    settings: the helper's copy of the run's settings.
    identity: its key and the roster that it believes, or where it finds them.
    announces: whether it is the helper that tells silos who is in the sum.
    """

    name: str
    settings: RunSettings
    identity: Identity | KeyFiles
    announces: bool

    def open(self, memory: Memory) -> HelperParticipant:
        return HelperParticipant(self)


class HelperParticipant(WorkingParticipant):
    """A running helper. Its task is a `SetUpTask`, or a `QueryTask` with its broadcast."""

    def __init__(self, spec: HelperSpec) -> None:
        self.name = spec.name
        self.announces = spec.announces
        self.settings = spec.settings
        self.identity = spec.identity.identity()
        self.present = spec.settings.silos
        self.session = b""
        self.protocol = spec.settings.aggregation.helper(
            spec.name, spec.settings.silos, spec.settings.algo.contributors.weighting
        )

    def take_part(self, task: SetUpTask | QueryTask) -> Party:
        if isinstance(task, SetUpTask):
            return self.working(self._set_up(task))
        if isinstance(task, QueryTask) and task.broadcast is not None:
            query = self.settings.query(self.name, task, self.present, self.session)
            query = replace(query, sampled=task.broadcast.sampled)
            return self.working(self._query(query, task.broadcast))
        raise RefusedError(f"{self.name} refuses a task of type {type(task).__name__}")

    def _set_up(self, task: SetUpTask) -> Party:
        self.settings.require_present(self.name, task.silos)
        self.present = task.silos
        self.session = task.session
        self.protocol.signer = self.identity.signer(self.settings.digest, task.session)
        own = SetUp(task.session, self.settings.n_units, None, task.aborted, task.silos)
        return (yield from self.protocol.setup(own))

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
