"""The gate that every message of an exchange passes, on its way out and on its way in.

Outgoing messages carry a stamp: the session (everything since the last set-up), the round, the
query's place in the round and the phase. They are signed.

An incoming message is read only if its stamp is the expected one, its sender is expected and the
signature is that sender's. Its content must then fit the expected schema. A message with another
stamp (late, repeated or replayed) counts as not sent. Any other fault ends the exchange and names
the sender.

A run's parties all have keys (`crypto.roster`). A checksum, which anybody can make, serves tests of
single parties alone.
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
"""A round, and a query's place in it; (0, 0) for the set-up."""


@register
@dataclass(frozen=True)
class Message:
    """What a party sends.

    session: names the set-up that this message belongs to.
    round: 0 for the set-up.
    place: of the query in its round.
    phase: step of the protocol.
    content: what a schema describes.
    signature: the sender's, or a checksum where parties do not sign.
    """

    session: bytes
    round: int
    place: int
    phase: str
    content: Any
    signature: bytes


@dataclass(frozen=True)
class Expected:
    """What a party waits for.

    phase: of the messages.
    schema: of their contents.
    senders: who may send them.
    """

    phase: str
    schema: Schema
    senders: Collection[str]


@dataclass
class Post:
    """Where one party's messages of one exchange leave and arrive.

    name: of the party.
    session: as in `Message`.
    serial: round and place.
    signer: signs outgoing messages and verifies incoming ones.
    strays: number of ignored messages (other session, round or phase) by sender.
    heard: digest of the last content read from each sender.
    """

    name: str
    session: bytes
    serial: Serial = (0, 0)
    signer: Signer = CHECKSUM
    strays: dict[str, int] = field(default_factory=dict)
    heard: dict[str, bytes] = field(default_factory=dict)

    def exchange(self, phase: str, mail: Mail, expected: Expected) -> Generator[Mail, Mail, Mail]:
        """Send `mail` (contents by receiver), then wait for the expected messages.

        Returns contents by sender; empty when nobody answers. Raises AggregationAbortedError for a
        message that no honest party sends.
        """
        return self.await_answers(self.signed(phase, mail), expected)

    def exchange_all(
        self, phase: str, mail: Mail, expected: Expected
    ) -> Generator[Mail, Mail, Mail]:
        """The same. Raises SilenceError unless every expected sender answers."""
        received = yield from self.exchange(phase, mail, expected)
        self.require_all(expected.senders, received)
        return received

    def ask(
        self, phase: str, receiver: str, content: Any, answer: tuple[str, Schema]
    ) -> Generator[Mail, Mail, Any]:
        """Send `content` to one party and return its answer, of the given phase and schema."""
        expected = Expected(*answer, (receiver,))
        received = yield from self.exchange_all(phase, {receiver: content}, expected)
        return received[receiver]

    def await_answers(self, sent: Mail, expected: Expected) -> Generator[Mail, Mail, Mail]:
        """As `exchange`, for messages that are signed already. `PATIENCE` steps with strays alone
        count as silence."""
        for _ in range(PATIENCE):
            arrived = yield sent
            accepted = self.accept(arrived, expected)
            if accepted or not arrived:
                return accepted
            sent = {}
        return {}

    def accept(self, mail: Mail, expected: Expected) -> Mail:
        """Contents of the expected messages, by sender. Raises AggregationAbortedError for a
        message that no honest party sends."""
        contents = {sender: self._content(sender, mail[sender], expected) for sender in mail}
        return {sender: content for sender, content in contents.items() if content is not _STRAY}

    def receive(self, expected: Expected) -> Generator[Mail, Mail, Mail]:
        """Wait without sending."""
        return self.exchange("", {}, expected)

    def receive_all(self, expected: Expected) -> Generator[Mail, Mail, Mail]:
        """The same. Raises SilenceError unless every expected sender is heard."""
        return self.exchange_all("", {}, expected)

    def send(self, phase: str, mail: Mail) -> Generator[Mail, Mail, None]:
        """Send `mail` (contents by receiver) without waiting for an answer."""
        yield self.signed(phase, mail)

    def require_all(self, names: Iterable[str], received: Mail) -> None:
        """Raise SilenceError unless there is a message from each of `names`."""
        silent = [name for name in names if name not in received]
        if silent:
            # A sum that lacks a noise share would be less private than declared.
            raise SilenceError(self.describe_missing(silent), silent)

    def describe_missing(self, names: Iterable[str]) -> str:
        """One line: whose messages are missing, and how many of theirs were ignored."""
        left_aside = " ({} of another session, round or phase)"
        strays = {name: self.strays.get(name, 0) for name in names}
        lines = (
            name + (left_aside.format(count) if count else "") for name, count in strays.items()
        )
        return f"no message from {', '.join(lines)}"

    def signed(self, phase: str, mail: Mail) -> Mail:
        """Contents by receiver as signed messages of `phase`."""
        digests: dict[int, bytes] = {}  # content for many receivers is hashed once
        messages = {}
        for receiver, content in mail.items():
            if id(content) not in digests:
                digests[id(content)] = digest_of(content)
            signature = self.signer.sign(
                self._statement(phase, self.name, receiver, digests[id(content)])
            )
            messages[receiver] = Message(self.session, *self.serial, phase, content, signature)
        return messages

    def _statement(
        self, phase: str, sender: str, receiver: str, content: bytes
    ) -> tuple[str | bytes | int, ...]:
        return ("message", self.session, *self.serial, phase, sender, receiver, content)

    def _content(self, sender: str, message: Any, expected: Expected) -> Any:
        with blaming(sender):
            if type(message) is not Message:
                raise SchemaError(f"{type(message).__name__} without a stamp")
            stamp = message.session, message.round, message.place, message.phase
            if sender not in expected.senders or not _same(
                stamp, (self.session, *self.serial, expected.phase)
            ):
                self.strays[sender] = self.strays.get(sender, 0) + 1
                return _STRAY
            digest = digest_of(message.content)
            statement = self._statement(expected.phase, sender, self.name, digest)
            if not self.signer.verifies(sender, message.signature, statement):
                raise SchemaError("the signature is not its own")
            expected.schema.check(message.content)
        self.heard[sender] = digest
        return message.content


_STRAY = object()


def _same(stamp: tuple[Any, ...], awaited: tuple[bytes | int | str, ...]) -> bool:
    """Compare types first: a foreign stamp may hold anything, such as an array."""
    return all(
        type(one) is type(other) and one == other for one, other in zip(stamp, awaited, strict=True)
    )


def claims(message: Any, phase: str) -> bool:
    """Whether a message claims to belong to `phase`; nothing else is checked."""
    return type(message) is Message and _same((message.phase,), (phase,))


@contextmanager
def blaming(sender: str) -> Iterator[None]:
    """Turn a fault in a party's message, found here or later, into a MisfitError that names the
    sender."""
    try:
        yield
    except (ValueError, MessageError) as error:
        raise MisfitError(
            f"a message of {sender} is refused: {str(error) or type(error).__name__}"
        ) from error


@contextmanager
def at_fault(name: str) -> Iterator[None]:
    """Put the party's own name in front of an abort that its computation raises."""
    try:
        yield
    except AggregationAbortedError as error:
        raise type(error)(f"{name}: {error}") from error


def contents(mail: Mapping[str, Any]) -> dict[str, Any]:
    """The contents of messages, by receiver or sender; for code that observes an exchange."""
    return {name: message.content for name, message in mail.items()}
