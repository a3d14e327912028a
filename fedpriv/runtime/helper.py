"""A helper: a participant without records, such as a server, which tells stateful silos who is in
the sum."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.crypto.key_files import KeyFiles
from fedpriv.crypto.roster import Identity
from fedpriv.errors import AggregationAbortedError, RefusedError
from fedpriv.parties.party import Mail, Memory, Party, PartySpec, WorkingParticipant
from fedpriv.parties.post import Expected, Post, claims
from fedpriv.rounds.query import SUMMED, Broadcast, Query, QueryTask, SetUpTask
from fedpriv.runtime.run_settings import RunSettings
from fedpriv.util.work import Work


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
            return self.working(self.answer(query, task.broadcast))
        raise RefusedError(f"{self.name} refuses a task of type {type(task).__name__}")

    def _set_up(self, task: SetUpTask) -> Party:
        self.settings.require_set_up(self.name, task)
        self.present = task.silos
        self.session = task.session
        self.protocol.signer = self.identity.signer(self.settings.digest, task.session)
        return (yield from self.protocol.setup(task, self.settings.n_units))

    def answer(self, query: Query, broadcast: Broadcast) -> Party:
        total = yield from self.protocol.query(query, broadcast)
        if total is not None:
            query.covered(total)
            if query.asked.stateful and self.announces:
                post = query.post(self.name, self.protocol.signer)
                yield from post.send(SUMMED, dict.fromkeys(query.silos, total.silos))
        return total


@dataclass
class SumMembership:
    """Receives the announcement of who is in the sum. It may arrive before the silo's protocol has
    ended.

    post: gate of the silo.
    expected: schema and senders of the announcement.
    silos: names of the silos in the sum; None: not announced yet.
    """

    post: Post
    expected: Expected
    silos: tuple[str, ...] | None = None

    def overhearing(self, party: Party) -> Party:
        """Run `party`, and keep the announcement out of its mail."""
        given: Any = None
        while True:
            try:
                said = party.send(given)
            except StopIteration as end:
                return end.value
            given = yield said
            if type(said) is dict or not isinstance(said, Work):
                given = self._without(given)

    def summed(self) -> Generator[Mail, Mail, tuple[str, ...]]:
        """The names of the silos in the sum. Raises AggregationAbortedError without an
        announcement: the silo's state would no longer match that of the others."""
        if self.silos is None:
            self._learn((yield from self.post.receive(self.expected)))
        if self.silos is None:
            raise AggregationAbortedError(f"{self.post.name} has not been told who is in the sum")
        return self.silos

    def _without(self, mail: Mail) -> Mail:
        """The mail without the announcement. The party itself ignores an announcement from another
        round."""
        ours = {name: said for name, said in mail.items() if claims(said, SUMMED)}
        if not ours:
            return mail
        heard = self.post.accept(ours, self.expected)
        self._learn(heard)
        return {name: said for name, said in mail.items() if name not in heard}

    def _learn(self, heard: Mail) -> None:
        for silos in heard.values():
            self.silos = silos
