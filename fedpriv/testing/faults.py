"""Any engine with a network that loses, delays, repeats or changes chosen messages.

A fault says which letters it meets, by exchange, step, sender and receiver (None: any), and what becomes of each. Every
letter meets the first fault that fits. A late letter wakes its receiver like any other; when a newer one of the same
sender arrives in the same step, the receiver gets only the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from fedpriv.engines.base import Engine, Network, Session
from fedpriv.parties.party import Memory, PartySpec
from fedpriv.parties.traffic import Letter

Effect = Callable[[Any], list[tuple[int, Any]]]
"""From a message to what arrives instead: (steps too late, message)."""


@dataclass(frozen=True)
class Fault:
    """What becomes of some letters. exchange: its number within the session, which like that of a step begins at 0."""

    effect: Effect
    step: int | None = None
    sender: str | None = None
    receiver: str | None = None
    exchange: int | None = None

    def fits(self, exchange: int, letter: Letter) -> bool:
        wanted = (self.exchange, self.step, self.sender, self.receiver)
        return all(want is None or want == has for want, has in zip(wanted, (exchange, *letter[:3])))


def drop(**where: Any) -> Fault:
    """The letter never arrives. where: exchange, step, sender, receiver."""
    return Fault(lambda message: [], **where)


def delay(steps: int, **where: Any) -> Fault:
    """The letter arrives `steps` steps late."""
    return Fault(lambda message: [(steps, message)], **where)


def duplicate(**where: Any) -> Fault:
    """The letter arrives, and again one step later."""
    return Fault(lambda message: [(0, message), (1, message)], **where)


def alter(change: Callable[[Any], Any], **where: Any) -> Fault:
    """The letter arrives as change(message)."""
    return Fault(lambda message: [(0, change(message))], **where)


@dataclass(frozen=True)
class Faulty(Engine):
    """`engine` with a network that has faults."""

    engine: Engine
    faults: tuple[Fault, ...]

    def check(self, device: str) -> None:
        self.engine.check(device)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        session, exchanges = self.engine.open(specs, memories), count()
        session.network = lambda: _FaultyNetwork(next(exchanges), self.faults)
        return session


class _FaultyNetwork(Network):
    def __init__(self, exchange: int, faults: tuple[Fault, ...]) -> None:
        self.exchange = exchange
        self.faults = faults
        self.late: list[tuple[int, Letter]] = []

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        for letter in letters:
            fault = next((fault for fault in self.faults if fault.fits(self.exchange, letter)), None)
            for lag, message in fault.effect(letter.message) if fault else [(0, letter.message)]:
                self.late.append((step + lag, letter._replace(message=message)))
        due = [letter for when, letter in self.late if when <= step]
        self.late = [(when, letter) for when, letter in self.late if when > step]
        return sorted(due, key=lambda letter: letter.step)  # of two from one sender, the newer comes last

    @property
    def pending(self) -> bool:
        return bool(self.late)
