"""How a stateful silo learns which silos are in the sum."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, claims
from fedpriv.rounds.query import SUMMED
from fedpriv.util.work import Work


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
        for summed in heard.values():
            self.silos = summed.silos
