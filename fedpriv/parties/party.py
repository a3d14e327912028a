"""Parties and participants.

A protocol is a set of parties. A party is a generator: it yields `{receiver: message}` and is sent
`{sender: message}`. It wakes when it has mail. Empty mail means that nobody sends anything more, or
that nothing has come for `PATIENCE` steps; missing senders have dropped out. Instead of messages a
party may yield `Work`, such as local training. It then gets the work's result in the same step.
Parties in one process may have their work done in one batch.

A `Participant` exists for the whole run. It is created in its own process from a
`PartySpec`. Its attributes are its memory: keys, shares, records, and the state of an algorithm.
Only messages, the return value of an exchange and an explicit `checkpoint` leave it.

>>> def asks():
...     answers = yield {"server": "how many?"}
...     return answers["server"]
>>> party = asks()
>>> next(party)
{'server': 'how many?'}
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from fedpriv.util.work import Work

Mail = dict[str, Any]
"""Messages by sender for the receiver, by receiver for the sender."""

Party = Generator[Mail | Work[Any], Any, Any]
"""One participant's part in one exchange; its return value is what the participant learned."""

Memory = Mapping[str, np.ndarray]
"""A participant's checkpoint: arrays by name. It never holds keys, masks or shares."""


PATIENCE = 256
"""Steps that a party waits, however many messages others exchange. Protocols answer within a few
steps."""


def silo_name(index: int) -> str:
    """The name of a silo as a party."""
    return f"silo{index}"


class Participant(ABC):
    """A party for the whole run."""

    @abstractmethod
    def take_part(self, task: Any) -> Party:
        """One exchange.

        task: a message; what the party is told from outside before the first message of others.
        """

    def checkpoint(self) -> dict[str, np.ndarray]:
        """State that a run needs to continue elsewhere; `PartySpec.open` takes it back."""
        return {}

    @property
    def computing(self) -> bool:
        """Whether a long computation is running, so that silence does not mean a lost party."""
        return False

    def close(self) -> None:  # noqa: B027
        """Give up what another life of the party needs, such as locked files."""


class WorkingParticipant(Participant):
    """A participant with long steps, such as local training or cryptography."""

    _at_work = False

    @property
    def computing(self) -> bool:
        return self._at_work

    def working(self, party: Party) -> Party:
        """The same party; its steps count as computing."""
        given: Any = None
        while True:
            self._at_work = True
            try:
                said = party.send(given)
            except StopIteration as end:
                return end.value
            finally:
                self._at_work = False
            # The engine runs work next. Messages, which are more often, are quicker to recognise.
            self._at_work = type(said) is not dict and isinstance(said, Work)
            given = yield said


class PartySpec(ABC):
    """The description of a participant, without other participants' secrets and data.

    Over Ray it is a dataclass of plain values, arrays, tensors and further dataclasses, in modules
    that the party's process can import.
    """

    @abstractmethod
    def open(self, memory: Memory) -> Participant:
        """Create the participant in this process.

        memory: its last checkpoint; empty at the start of a run.
        """
