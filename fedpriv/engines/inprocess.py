"""All parties in this process, in lock step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedpriv.engines.base import Engine, Returned, Sent, Session
from fedpriv.parties.party import Mail, Memory, Participant, Party, PartySpec


@dataclass(frozen=True)
class InProcess(Engine):
    """One process. Within a step parties run in the order of their names, which no result depends on."""

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return InProcessSession(specs, memories)


class InProcessSession(Session):
    """Nobody is ever lost."""

    lost: frozenset[str] = frozenset()

    def __init__(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> None:
        self.specs = dict(specs)
        self.participants: dict[str, Participant] = {}
        self.parties: dict[str, Party] = {}
        self.reopen({name: memories.get(name, {}) for name in specs})

    def reopen(self, memories: Mapping[str, Memory]) -> None:
        for name, memory in memories.items():
            self.participants[name] = self.specs[name].open(memory)

    def begin(self, tasks: Mapping[str, Any]) -> None:
        self.parties = {name: self.participants[name].take_part(task) for name, task in tasks.items()}

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Sent | Returned | None]:
        return {name: answer(self.parties[name], mail[name]) for name in sorted(mail)}

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        return {name: self.participants[name].checkpoint() for name in names}

    def close(self) -> None:
        self.parties.clear()
        self.participants.clear()


def answer(party: Party, mail: Mail | None) -> Sent | Returned:
    """Wake one party. Raises what it raises."""
    try:
        return Sent(party.send(mail) if mail is not None else next(party))
    except StopIteration as end:
        return Returned(end.value)
