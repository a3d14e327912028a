"""Any engine with a network that drops, delays, repeats, swaps or changes chosen messages.

A fault selects letters by exchange, step, phase, sender and receiver (None: any), and says what
arrives instead of each. The first fault that fits a letter applies. A late letter wakes its
receiver like any other. If a newer letter of the same sender arrives in the same step, the receiver
gets only the newer one.

>>> from dataclasses import replace
>>> from fedpriv.runtime import prepare
>>> from fedpriv.testing import experiment
>>> exp = experiment("algo=fedavg", "preset.n_users=8", "preset.local_epochs=1")
>>> lossy = replace(exp, engine=Faulty(exp.engine, (drop(sender="silo1"),)))
>>> with prepare(lossy) as run:
...     run.run_round(run.queries(1), run.state).aborted
'no message from silo1'
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
class NetworkContext:
    """What the network knows when it carries a letter.

    now: all letters of this step.
    before: the last message at each address in earlier exchanges.
    """

    now: list[Letter]
    before: Mapping[Address, Any]


Arrivals = list[tuple[int, Any]]
"""What arrives instead of a letter: (steps of delay, message)."""

Effect = Callable[[Letter, NetworkContext], Arrivals]


@dataclass(frozen=True)
class Fault:
    """A change of some letters. The fields that select letters are None for any.

    effect: what arrives instead.
    step: step of the exchange, from 0.
    sender: party that sends.
    receiver: party that receives.
    exchange: number of the exchange in the session, from 0.
    phase: phase of the protocol.
    """

    effect: Effect
    step: int | None = None
    sender: str | None = None
    receiver: str | None = None
    exchange: int | None = None
    phase: str | None = None

    def fits(self, exchange: int, letter: Letter) -> bool:
        wanted = (self.exchange, self.step, self.sender, self.receiver, self.phase)
        found = (exchange, *letter[:3], phase_of(letter))
        return all(want is None or want == has for want, has in zip(wanted, found))


def drop(**where: Any) -> Fault:
    """The letter never arrives. where: exchange, step, phase, sender, receiver."""
    return Fault(lambda letter, context: [], **where)


def delay(steps: int, **where: Any) -> Fault:
    """The letter arrives `steps` steps late."""
    return Fault(lambda letter, context: [(steps, letter.message)], **where)


def duplicate(**where: Any) -> Fault:
    """The letter arrives twice, the second time one step later."""
    return Fault(lambda letter, context: [(0, letter.message), (1, letter.message)], **where)


def alter(change: Callable[[Any], Any], **where: Any) -> Fault:
    """change(message) arrives. `fedpriv.testing.damage` has changes for any protocol."""
    return Fault(lambda letter, context: [(0, change(letter.message))], **where)


def forge(change: Callable[[Any], Any], **where: Any) -> Fault:
    """change(content) arrives with a new checksum but no signature: all that needs no key.

    An attacker who changes messages deliberately can do this.
    """

    def effect(letter: Letter, context: NetworkContext) -> Arrivals:
        stamp = letter.message
        post = Post(letter.sender, stamp.session, (stamp.round, stamp.place), CHECKSUM)
        content = {letter.receiver: change(stamp.content)}
        return [(0, post.signed(stamp.phase, content)[letter.receiver])]

    return Fault(effect, **where)


def replay(old: Iterable[Letter] | None = None, **where: Any) -> Fault:
    """An old letter of the same phase, sender and receiver arrives instead.

    old: letters to take it from; None: the last one of an earlier exchange. If there is none, the
        letter arrives unchanged.
    """
    given = None if old is None else {address_of(letter): letter.message for letter in old}

    def effect(letter: Letter, context: NetworkContext) -> Arrivals:
        known = context.before if given is None else given
        return [(0, known.get(address_of(letter), letter.message))]

    return Fault(effect, **where)


def swap(one: str, other: str, **where: Any) -> Fault:
    """Letters of two senders to the same receiver in the same step are exchanged."""
    return _exchanged("sender", one, other, where)


def misdeliver(one: str, other: str, **where: Any) -> Fault:
    """Letters of the same sender to two receivers in the same step are exchanged."""
    return _exchanged("receiver", one, other, where)


def _exchanged(side: str, one: str, other: str, where: Mapping[str, Any]) -> Fault:
    partner = {one: other, other: one}

    def effect(letter: Letter, context: NetworkContext) -> Arrivals:
        own = getattr(letter, side)
        wanted = letter._replace(**{side: partner.get(own, own)})[:3]
        found = (match.message for match in context.now if match[:3] == wanted)
        return [(0, next(found, letter.message))]

    return Fault(effect, **where)


def phase_of(letter: Letter) -> str | None:
    """The phase of a stamped message."""
    return letter.message.phase if type(letter.message) is Message else None


def address_of(letter: Letter) -> Address:
    """The address that corresponding letters of other exchanges share."""
    return phase_of(letter), letter.sender, letter.receiver


@dataclass(frozen=True)
class Faulty(Engine):
    """An engine with faults in its network.

    engine: the engine.
    faults: the faults; the first that fits a letter applies.
    """

    engine: Engine
    faults: tuple[Fault, ...]

    def check(self, device: str) -> None:
        self.engine.check(device)

    def open(self, specs: Mapping[str, PartySpec], memories: Mapping[str, Memory]) -> Session:
        session = self.engine.open(specs, memories)
        session.network = FaultyNetwork(self.faults)
        return session


@dataclass
class FaultyNetwork(Network):
    """The network of one session; a call starts the next exchange.

    faults: the faults.
    sent: all letters so far, by exchange.
    before: the last message at each address in earlier exchanges.
    late: letters on their way, with the step in which they arrive.
    """

    faults: tuple[Fault, ...]
    sent: list[list[Letter]] = field(default_factory=list)
    before: dict[Address, Any] = field(default_factory=dict)
    late: list[tuple[int, Letter]] = field(default_factory=list)

    def __call__(self) -> Network:
        for letters in self.sent[-1:]:
            self.before |= {address_of(letter): letter.message for letter in letters}
        self.sent.append([])
        self.late = []
        return self

    def carry(self, step: int, letters: list[Letter]) -> list[Letter]:
        self.sent[-1] += letters
        context = NetworkContext(letters, self.before)
        for letter in letters:
            fits = (fault for fault in self.faults if fault.fits(len(self.sent) - 1, letter))
            fault = next(fits, None)
            arrivals = fault.effect(letter, context) if fault else [(0, letter.message)]
            self.late += [(step + lag, letter._replace(message=m)) for lag, m in arrivals]
        due = [letter for when, letter in self.late if when <= step]
        self.late = [(when, letter) for when, letter in self.late if when > step]
        # Of two letters from one sender, the newer one comes last.
        return sorted(due, key=lambda letter: letter.step)

    @property
    def pending(self) -> bool:
        return bool(self.late)
