"""Runs all parties in this process, in lock step."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from fedpriv.engines.base import Answer, Engine, Returned, Session
from fedpriv.errors import RefusedError
from fedpriv.parties.one_process import OneProcess, sharing
from fedpriv.parties.party import Mail, Memory, Participant, Party, PartySpec
from fedpriv.util.work import Work, run_all

OBJECTS = 100
"""Objects that one party of an exchange makes before it is done."""

_lock = threading.Lock()


def collect_rarely(parties: int) -> Callable[[], None]:
    """Begin a search for cycles only after as many new objects as this many parties make. Returns
    the function that ends this.

    Each search reads all that live: a step of ten thousand parties would spend half of its time in
    searches that find nothing. Memory that no cycle holds is free at once, as ever. Only the first
    call of a process has an effect, until it ends.
    """
    if not _lock.acquire(blocking=False):
        return lambda: None
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS * parties), *before[1:])

    def end() -> None:
        gc.set_threshold(*before)
        _lock.release()

    return end


UNVERIFIED = (
    "all parties run in this process, so messages that nobody else reads are not signed, and a "
    "signature is verified once"
)
WAITING_BYTES = 2**28
"""Most memory of results that waiting work may have together."""


@dataclass(frozen=True)
class InProcess(Engine):
    """One process. Messages that nobody else reads are not signed.

    Within a step parties run in the order of their names; no result depends on the order. What one
    party has signed or verified, others do not verify again (`parties.one_process`).
    """

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        return InProcessSession(specs, memories)


class InProcessSession(Session):
    """Parties in this process; none is ever lost.

    shared: what they need not compute twice.
    """

    lost: frozenset[str] = frozenset()
    simulated = UNVERIFIED

    def __init__(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> None:
        self.specs = dict(specs)
        self.shared = OneProcess()
        self.participants: dict[str, Participant] = {}
        self.parties: dict[str, Party] = {}
        self._collect_as_before = weakref.finalize(self, collect_rarely(len(specs)))
        try:
            self.reopen({name: memories.get(name, {}) for name in specs})
        except BaseException:
            self.close()
            raise

    def reopen(self, memories: Mapping[str, Memory]) -> None:
        for name, memory in memories.items():
            if name in self.participants:
                self.participants[name].close()
            self.participants[name] = self.specs[name].open(memory)

    def exchanging(self, *, watched: bool) -> AbstractContextManager[object]:
        self.shared.unsigned = not watched
        self.shared.exchanged.clear()
        return sharing(self.shared)

    def begin(self, tasks: Mapping[str, Any]) -> None:
        self.parties = {
            name: self.participants[name].take_part(task) for name, task in tasks.items()
        }

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        answers: dict[str, Answer | None] = dict.fromkeys(sorted(mail))
        waiting: dict[str, Work[Any]] = {}
        nbytes = 0
        for name in answers:
            said = self._resumed(name, mail[name])
            if type(said) is dict or not isinstance(said, Work):
                answers[name] = said
                continue
            waiting[name] = said
            nbytes += said.nbytes
            if nbytes >= WAITING_BYTES:
                answers |= self._after(waiting)
                waiting = {}
                nbytes = 0
        return answers | self._after(waiting)

    def _resumed(self, name: str, given: Any) -> Answer | Work[Any] | None:
        """As `resume`; None for a party that refuses."""
        try:
            return resume(self.parties[name], given)
        except RefusedError as refusal:
            self.refusals[name] = refusal
            return None

    def _after(self, waiting: Mapping[str, Work[Any]]) -> dict[str, Answer | None]:
        """Run the work that parties wait for, and all further work that they ask for; return their
        answers."""
        answers: dict[str, Answer | None] = {}
        while waiting:
            results = run_all(list(waiting.values()))[::-1]
            more = {}
            for name in waiting:
                said = self._resumed(name, results.pop())
                if type(said) is dict or not isinstance(said, Work):
                    answers[name] = said
                else:
                    more[name] = said
            waiting = more
        return answers

    def checkpoints(self, names: Iterable[str]) -> dict[str, Memory]:
        return {name: self.participants[name].checkpoint() for name in names}

    def close(self) -> None:
        self.parties.clear()
        for participant in self.participants.values():
            participant.close()
        self.participants.clear()
        self._collect_as_before()


def resume(party: Party, given: Any) -> Answer | Work[Any]:
    """Wake a party with mail, or with the result of its work. Raises what the party raises."""
    try:
        return party.send(given)
    except StopIteration as end:
        return Returned(end.value)


def answer(party: Party, mail: Mail | None) -> Answer:
    """As `resume`, for a party whose work is not batched with others'."""
    said = resume(party, mail)
    while isinstance(said, Work):
        [result] = run_all([said])
        said = resume(party, result)
    return said
