"""Any engine with a network that loses, delays, repeats or changes chosen messages. For tests.

A fault says which letters it meets, by step, sender and receiver (None: any), and what becomes of each. Every letter
meets the first fault that fits. A late letter wakes its receiver like any other; when a newer one of the same sender
arrives in the same step, the receiver gets only the newer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.engines.base import Engine, Host, Network
from fedpriv.engines.traffic import Letter

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Party

Effect = Callable[[Any], list[tuple[int, Any]]]
"""From a message to what arrives instead: (steps too late, message)."""


@dataclass(frozen=True)
class Fault:
    """What becomes of some letters."""

    effect: Effect
    step: int | None = None
    sender: str | None = None
    receiver: str | None = None

    def fits(self, letter: Letter) -> bool:
        wanted = zip((self.step, self.sender, self.receiver), letter[:3])
        return all(want is None or want == has for want, has in wanted)


def drop(**where: Any) -> Fault:
    """The letter never arrives. where: step, sender, receiver."""
    return Fault(lambda message: [], **where)


def delay(steps: int, **where: Any) -> Fault:
    """The letter arrives so many steps late."""
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

    def host(self, parties: dict[str, Party]) -> AbstractContextManager[Host]:
        return self.engine.host(parties)

    def network(self) -> Network:
        return _FaultyNetwork(self.faults)


class _FaultyNetwork(Network):
    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.faults = faults
        self.late: list[tuple[int, Letter]] = []

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        for letter in letters:
            fault = next((fault for fault in self.faults if fault.fits(letter)), None)
            for lag, message in fault.effect(letter.message) if fault else [(0, letter.message)]:
                self.late.append((step + lag, letter._replace(message=message)))
        due = [letter for when, letter in self.late if when <= step]
        self.late = [(when, letter) for when, letter in self.late if when > step]
        return sorted(due, key=lambda letter: letter.step)  # of two from one sender, the newer comes last

    @property
    def pending(self) -> bool:
        return bool(self.late)
