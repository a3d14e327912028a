"""Any engine with a network that loses, delays, repeats, confuses or changes chosen messages.

A fault says which letters it meets, by exchange, step, phase, sender and receiver (None: any), and
what becomes of each. Every letter meets the first fault that fits. A late letter wakes its receiver
like any other; when a newer one of the same sender arrives in the same step, the receiver gets only
the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedpriv.engines.base import Engine, Network, Session
from fedpriv.parties.party import Memory, PartySpec
from fedpriv.parties.post import Message, Post
from fedpriv.parties.signer import CHECKSUM
from fedpriv.parties.traffic import Letter

Address = tuple[str | None, str, str]
"""A phase, a sender and a receiver."""


@dataclass(frozen=True)
class Around:
    """What a network knows when it carries a letter: all letters of this step, and from earlier
    exchanges the last message at each address."""

    now: list[Letter]
    before: Mapping[Address, Any]


Effect = Callable[[Letter, Around], list[tuple[int, Any]]]
"""What arrives instead of a letter: (steps too late, message)."""


@dataclass(frozen=True)
class Fault:
    """What becomes of some letters.

    exchange: its number within the session, which like that of a step begins at 0.
    """

    effect: Effect
    step: int | None = None
    sender: str | None = None
    receiver: str | None = None
    exchange: int | None = None
    phase: str | None = None

    def fits(self, exchange: int, letter: Letter) -> bool:
        wanted = (self.exchange, self.step, self.sender, self.receiver, self.phase)
        return all(
            want is None or want == has
            for want, has in zip(wanted, (exchange, *letter[:3], phase_of(letter)))
        )


def drop(**where: Any) -> Fault:
    """The letter never arrives. where: exchange, step, phase, sender, receiver."""
    return Fault(lambda letter, around: [], **where)


def delay(steps: int, **where: Any) -> Fault:
    """The letter arrives `steps` steps late."""
    return Fault(lambda letter, around: [(steps, letter.message)], **where)


def duplicate(**where: Any) -> Fault:
    """The letter arrives, and again one step later."""
    return Fault(lambda letter, around: [(0, letter.message), (1, letter.message)], **where)


def alter(change: Callable[[Any], Any], **where: Any) -> Fault:
    """The letter arrives as change(message); `fedpriv.testing.damage` has changes that know nothing
    of a protocol."""
    return Fault(lambda letter, around: [(0, change(letter.message))], **where)


def forge(change: Callable[[Any], Any], **where: Any) -> Fault:
    """The letter arrives with change(content), and with everything made anew that takes no key: its
    checksum, but no signature. So does somebody who changes messages on purpose."""

    def effect(letter: Letter, around: Around) -> list[tuple[int, Any]]:
        stamp = letter.message
        gate = Post(letter.sender, stamp.session, (stamp.round, stamp.place), CHECKSUM)
        return [
            (
                0,
                gate.signed(stamp.phase, {letter.receiver: change(stamp.content)})[letter.receiver],
            )
        ]

    return Fault(effect, **where)


def replay(old: Iterable[Letter] | None = None, **where: Any) -> Fault:
    """Instead of the letter arrives an old one of the same phase, sender and receiver: the last of
    an earlier exchange or, when they are given, of `old` ones. Where there was none it arrives as
    it is."""
    given = None if old is None else {address_of(letter): letter.message for letter in old}

    def effect(letter: Letter, around: Around) -> list[tuple[int, Any]]:
        return [
            (0, (around.before if given is None else given).get(address_of(letter), letter.message))
        ]

    return Fault(effect, **where)


def swap(one: str, other: str, **where: Any) -> Fault:
    """What the two have sent to the same receiver in the same step arrives in each other's name."""
    return _exchanged("sender", one, other, where)


def misdeliver(one: str, other: str, **where: Any) -> Fault:
    """What the same sender has sent to the two in the same step arrives at the other one."""
    return _exchanged("receiver", one, other, where)


def _exchanged(side: str, one: str, other: str, where: Mapping[str, Any]) -> Fault:
    partner = {one: other, other: one}

    def effect(letter: Letter, around: Around) -> list[tuple[int, Any]]:
        own = getattr(letter, side)
        wanted = letter._replace(**{side: partner.get(own, own)})[:3]
        return [
            (
                0,
                next(
                    (match.message for match in around.now if match[:3] == wanted), letter.message
                ),
            )
        ]

    return Fault(effect, **where)


def phase_of(letter: Letter) -> str | None:
    """The phase that a stamped message belongs to."""
    return letter.message.phase if type(letter.message) is Message else None


def address_of(letter: Letter) -> Address:
    """Which letters of other exchanges correspond to it."""
    return phase_of(letter), letter.sender, letter.receiver


@dataclass(frozen=True)
class Faulty(Engine):
    """`engine` with a network that has faults."""

    engine: Engine
    faults: tuple[Fault, ...]

    def check(self, device: str) -> None:
        self.engine.check(device)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        session = self.engine.open(specs, memories)
        session.network = FaultyNetworks(self.faults)
        return session


@dataclass
class FaultyNetworks:
    """Makes the network of each exchange of one session.

    sent: all letters so far, by exchange.
    """

    faults: tuple[Fault, ...]
    sent: list[list[Letter]] = field(default_factory=list)

    def __call__(self) -> Network:
        before = {address_of(letter): letter.message for letters in self.sent for letter in letters}
        self.sent.append([])
        return _FaultyNetwork(len(self.sent) - 1, self.faults, self.sent[-1], before)


class _FaultyNetwork(Network):
    def __init__(
        self,
        exchange: int,
        faults: tuple[Fault, ...],
        sent: list[Letter],
        before: Mapping[Address, Any],
    ) -> None:
        self.exchange = exchange
        self.faults = faults
        self.sent = sent
        self.before = before
        self.late: list[tuple[int, Letter]] = []

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.sent += letters
        around = Around(letters, self.before)
        for letter in letters:
            fault = next(
                (fault for fault in self.faults if fault.fits(self.exchange, letter)), None
            )
            for lag, message in fault.effect(letter, around) if fault else [(0, letter.message)]:
                self.late.append((step + lag, letter._replace(message=message)))
        due = [letter for when, letter in self.late if when <= step]
        self.late = [(when, letter) for when, letter in self.late if when > step]
        return sorted(
            due, key=lambda letter: letter.step
        )  # of two from one sender, the newer comes last

    @property
    def pending(self) -> bool:
        return bool(self.late)
