"""What a participant is, wherever it lives.

A protocol is a set of parties, each a generator: it yields `{receiver: message}` and is sent
`{sender: message}`. A party wakes when it has mail; empty mail means that nobody has anything more
to say, or that nothing has come for `PATIENCE` steps, so whoever is missing dropped out. In place
of messages it may yield `Work`, such as local training: it is sent what that comes to, as `Done`,
in the same step. Where parties share a process theirs may be done together.

A `Participant` lives as long as the run. It is made where it will live from a picklable
`PartySpec`, and keeps its memory (keys, shares, its records, what an algorithm lets a silo
remember) as attributes of its own. Nothing of that memory leaves it but what it says in messages,
what an exchange returns, and an explicit `checkpoint`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from fedpriv.util.work import Work

Mail = dict[str, Any]
"""Messages by sender for who receives it, by receiver for who sends it."""

Party = Generator[Mail | Work[Any], Any, Any]
"""One exchange as one participant goes through it; its return value is what it has learned."""

Memory = Mapping[str, np.ndarray]
"""What a checkpoint holds of a participant: arrays by name. Keys, masks and shares are never among
them."""


PATIENCE = 256
"""Steps that a party waits for what it needs, however much others have to say. Protocols answer
within a few."""


def silo_name(index: int) -> str:
    """The name of a silo as a party."""
    return f"silo{index}"


class Participant(ABC):
    """A party for as long as the run."""

    @abstractmethod
    def take_part(self, task: Any) -> Party:
        """One exchange. `task` is public and picklable: what everybody knows of it before the first
        message."""

    def checkpoint(self) -> dict[str, np.ndarray]:
        """What must survive for the run to go on elsewhere; `PartySpec.open` takes it back."""
        return {}

    @property
    def computing(self) -> bool:
        """Whether a long computation is under way, so that silence does not mean that this party is
        gone."""
        return False


class WorkingParticipant(Participant):
    """A participant whose every step may take as long as it takes, such as local training or
    cryptography."""

    _at_work = False

    @property
    def computing(self) -> bool:
        return self._at_work

    def working(self, party: Party) -> Party:
        """The same party, whose steps count as computing."""
        given: Any = None
        while True:
            self._at_work = True
            try:
                said = party.send(given)
            except StopIteration as end:
                return end.value
            finally:
                self._at_work = False
            self._at_work = isinstance(said, Work)  # which is computed next
            given = yield said


class PartySpec(ABC):
    """A picklable description of a participant, which holds no other participant's data and no
    secret."""

    @abstractmethod
    def open(self, memory: Memory) -> Participant:
        """Make the participant, here and now.

        memory: its last checkpoint; empty at the start of a run.
        """
