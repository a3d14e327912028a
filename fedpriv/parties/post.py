"""The gate that every message of an exchange goes through, on its way out and on its way in.

Out: each message is stamped with the session (everything since the last set-up), the round, the
query's place in it and the phase, and signed where the party has a key to sign with, else with a
checksum. In: only what carries the stamp that is waited for, comes from somebody who may send it,
and is signed by that party, is looked at; then it must be of the declared kind. A message with
another stamp (a late, repeated or replayed one) counts as not sent; whatever else is wrong with a
message ends the exchange, with the sender's name.

A checksum tells what was damaged or misdirected by mistake. It proves nothing: whoever changes
messages on their way on purpose makes a new one. Where nobody signs the protocol needs channels
that are authentic, such as TLS.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fedpriv.errors import AggregationAbortedError, MisfitError, SilenceError
from fedpriv.parties.messages import MessageError, digest_of, register
from fedpriv.parties.party import PATIENCE, Mail
from fedpriv.parties.schema import Schema, SchemaError
from fedpriv.parties.signer import CHECKSUM, Signer

Serial = tuple[int, int]
"""A round and the place of a query in it; the set-up is (0, 0)."""


@register
@dataclass(frozen=True)
class Stamped:
    """A message with where it belongs.

    signature: of its sender, or a checksum where parties do not sign.
    """

    session: bytes
    round: int
    place: int
    phase: str
    content: Any
    signature: bytes


@dataclass(frozen=True)
class Hear:
    """What is waited for: a phase's message, of one kind, from some parties."""

    phase: str
    kind: Schema
    senders: Collection[str]


@dataclass
class Post:
    """One party's gate in one exchange.

    signer: signs what it sends and checks what others have signed; the same for both sides.

    strays: by sender, how many messages of another session, round or phase were left aside.
    """

    name: str
    session: bytes
    serial: Serial = (0, 0)
    signer: Signer = CHECKSUM
    strays: dict[str, int] = field(default_factory=dict)

    def exchange(self, phase: str, mail: Mail, hear: Hear) -> Generator[Mail, Mail, Mail]:
        """Send `mail` (contents by receiver) as messages of `phase`, and wait for what `hear` says.
        Returns contents by sender, empty when nobody answers. Raises AggregationAbortedError for a
        message that is no honest party's."""
        return (yield from self.answered(self.stamped(phase, mail), hear))

    def answered(self, sent: Mail, hear: Hear) -> Generator[Mail, Mail, Mail]:
        """The same with messages that are stamped already. Nothing but strays `PATIENCE` times is
        silence."""
        for _ in range(PATIENCE):
            arrived = yield sent
            heard = self.opened(arrived, hear)
            if heard or not arrived:
                return heard
            sent = {}
        return {}

    def opened(self, mail: Mail, hear: Hear) -> Mail:
        """Contents by sender of what is waited for. Raises AggregationAbortedError for what no
        honest party sends."""
        opened = {sender: self._opened(sender, message, hear) for sender, message in mail.items()}
        return {sender: content for sender, content in opened.items() if content is not _STRAY}

    def hear(self, hear: Hear) -> Generator[Mail, Mail, Mail]:
        """Wait without a word."""
        return self.exchange("", {}, hear)

    def tell(self, phase: str, mail: Mail) -> Generator[Mail, Mail, None]:
        """Send, and wait for nothing."""
        yield self.stamped(phase, mail)

    def require_all(self, names: Iterable[str], heard: Mail) -> None:
        """Raise SilenceError unless every one of them has been heard."""
        silent = [name for name in names if name not in heard]
        if silent:
            # Without its noise share the sum would be less private than declared.
            raise SilenceError(self.nothing_from(silent), silent)

    def nothing_from(self, names: Iterable[str]) -> str:
        """Whose message is missing, and how much of theirs was left aside, for a person to read."""
        left_aside = " ({} of another session, round or phase)"
        strays = {name: self.strays.get(name, 0) for name in names}
        told = (
            name + (left_aside.format(count) if count else "") for name, count in strays.items()
        )
        return f"no message from {', '.join(told)}"

    def stamped(self, phase: str, mail: Mail) -> Mail:
        """`mail` (contents by receiver) as messages of `phase`."""
        digests: dict[int, bytes] = {}  # what goes to many is read once
        stamped = {}
        for receiver, content in mail.items():
            if id(content) not in digests:
                digests[id(content)] = digest_of(content)
            signature = self.signer.sign(
                self._statement(phase, self.name, receiver, digests[id(content)])
            )
            stamped[receiver] = Stamped(self.session, *self.serial, phase, content, signature)
        return stamped

    def _statement(
        self, phase: str, sender: str, receiver: str, content: bytes
    ) -> tuple[str | bytes | int, ...]:
        return ("message", self.session, *self.serial, phase, sender, receiver, content)

    def _opened(self, sender: str, message: Any, hear: Hear) -> Any:
        with blaming(sender):
            if type(message) is not Stamped:
                raise SchemaError(f"{type(message).__name__} without a stamp")
            stamp = message.session, message.round, message.place, message.phase
            if sender not in hear.senders or not _same(
                stamp, (self.session, *self.serial, hear.phase)
            ):
                self.strays[sender] = self.strays.get(sender, 0) + 1
                return _STRAY
            statement = self._statement(hear.phase, sender, self.name, digest_of(message.content))
            if not self.signer.verifies(sender, message.signature, statement):
                raise SchemaError("the signature is not its own")
            hear.kind.check(message.content)
        return message.content


_STRAY = object()


def _same(stamp: tuple[Any, ...], awaited: tuple[bytes | int | str, ...]) -> bool:
    """Types first: a foreign stamp may hold anything, such as an array."""
    return all(
        type(one) is type(other) and one == other for one, other in zip(stamp, awaited, strict=True)
    )


def claims(message: Any, phase: str) -> bool:
    """Whether a message says that it belongs to the phase; nothing is checked by that."""
    return type(message) is Stamped and _same((message.phase,), (phase,))


@contextmanager
def blaming(sender: str) -> Iterator[None]:
    """Turn what is wrong with a party's message, found at the gate or later, into the exchange's
    end: a MisfitError."""
    try:
        yield
    except (ValueError, MessageError) as error:
        raise MisfitError(
            f"a message of {sender} is refused: {str(error) or type(error).__name__}"
        ) from error


@contextmanager
def at_fault(name: str) -> Iterator[None]:
    """Put a party's own name to what ends the exchange while it computes."""
    try:
        yield
    except AggregationAbortedError as error:
        raise type(error)(f"{name}: {error}") from error


def contents(mail: Mapping[str, Any]) -> dict[str, Any]:
    """What is inside stamped messages, by receiver or sender; for those who watch an exchange."""
    return {name: message.content for name, message in mail.items()}
