"""The gate that every message of an exchange passes, on its way out and on its way in.

Outgoing messages carry a stamp: the session (everything since the last set-up), the round, the
query's place in the round and the phase. They are signed.

An incoming message is read only if its stamp is the expected one, its sender is expected and the
signature is that sender's. Its content must then fit the expected schema. A message with another
stamp (late, repeated or replayed) counts as not sent. Any other fault ends the exchange and names
the sender.

A run's parties all have keys (`crypto.roster`). A checksum, which anybody can make, serves tests of
single parties alone.

Where all parties run in one process and nobody else reads or changes their messages, nothing is
signed (`parties.one_process`): a message holds its content's `Said` in place of a signature. A
receiver then compares the sender's key with the one that it expects.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from fedpriv.errors import AggregationAbortedError, MisfitError, SilenceError
from fedpriv.parties.messages import MessageError, digest_of, register, size_of
from fedpriv.parties.one_process import one_process
from fedpriv.parties.party import PATIENCE, Mail
from fedpriv.parties.schema import Schema, SchemaError
from fedpriv.parties.signer import CHECKSUM, Signer

Serial = tuple[int, int]
"""A round, and a query's place in it; (0, 0) for the set-up."""


@dataclass(eq=False)
class Said:
    """A content that is hashed once, for all receivers.

    content: of messages.
    signer: of the sender.
    fits: the schema that the content has been found to fit.
    """

    content: Any
    signer: Signer
    fits: Schema | None = None

    @cached_property
    def digest(self) -> bytes:
        """Of the content."""
        return digest_of(self.content)

    @cached_property
    def size(self) -> int:
        """Bytes of the content in a message. Raises MessageError for one without an encoding."""
        return size_of(self.content, depth=CONTENT_DEPTH)


@register
@dataclass(frozen=True)
class Message:
    """What a party sends.

    session: names the set-up that this message belongs to.
    round: 0 for the set-up.
    place: of the query in its round.
    phase: step of the protocol.
    content: what a schema describes.
    signature: the sender's, or a checksum where parties do not sign; what was said, for parties of
        one process.
    """

    session: bytes
    round: int
    place: int
    phase: str
    content: Any
    signature: bytes | Said


def encoded_size(message: Any) -> int:
    """len(encode(message)); a message without a signature counts as if it had one. Raises
    MessageError."""
    said = message.signature if type(message) is Message else None
    if not isinstance(said, Said):
        return size_of(message)
    stamp = (message.session, message.round, message.place, message.phase)
    return _bare_size(*stamp, said.signer.signature_bytes) + said.size


CONTENT_DEPTH = 2
"""Containers around a message's content: the message and its fields."""


@lru_cache(maxsize=64)
def _bare_size(session: bytes, round: int, place: int, phase: str, signature_bytes: int) -> int:
    """Size of a message without its content."""
    bare = Message(session, round, place, phase, None, bytes(signature_bytes))
    return size_of(bare) - size_of(None)


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
    heard: the last content read from each sender.
    """

    name: str
    session: bytes
    serial: Serial = (0, 0)
    signer: Signer = CHECKSUM
    strays: dict[str, int] = field(default_factory=dict)
    heard: dict[str, Said] = field(default_factory=dict)

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
        senders = frozenset(expected.senders)  # a list of thousands is long to search
        contents = {
            sender: self._content(sender, message, expected, sender in senders)
            for sender, message in mail.items()
        }
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

    def told(self, sender: str) -> bytes:
        """The digest of the last content read from a sender."""
        return self.heard[sender].digest

    def signed(self, phase: str, mail: Mail) -> Mail:
        """Contents by receiver as signed messages of `phase`."""
        shared = one_process()
        unsigned = shared is not None and shared.unsigned
        known: dict[int, Said] = {}
        messages = {}
        for receiver, content in mail.items():
            said = known.get(id(content))
            if said is None:
                known[id(content)] = said = Said(content, self.signer)
            signature: bytes | Said = said
            if not unsigned:
                statement = self.statement(phase, self.name, receiver, said.digest)
                signature = self.signer.sign(statement)
            messages[receiver] = Message(self.session, *self.serial, phase, content, signature)
        return messages

    def statement(
        self, phase: str, sender: str, receiver: str, content: bytes
    ) -> tuple[str | bytes | int, ...]:
        """What a party signs about a message.

        content: digest of the message's content.
        """
        return ("message", self.session, *self.serial, phase, sender, receiver, content)

    def _content(self, sender: str, message: Any, expected: Expected, asked: bool) -> Any:
        try:
            if type(message) is not Message:
                raise SchemaError(f"{type(message).__name__} without a stamp")
            stamp = message.session, message.round, message.place, message.phase
            if not asked or not _same(stamp, (self.session, *self.serial, expected.phase)):
                self.strays[sender] = self.strays.get(sender, 0) + 1
                return _STRAY
            said = message.signature
            if isinstance(said, Said):
                right = said.content is message.content and self.signer.accepts(sender, said.signer)
            else:
                said = Said(message.content, self.signer)
                statement = self.statement(expected.phase, sender, self.name, said.digest)
                right = self.signer.verifies(sender, message.signature, statement)
            if not right:
                raise SchemaError("the signature is not its own")
            if said.fits is not expected.schema:  # one content may be for many receivers
                expected.schema.check(message.content)
                said.fits = expected.schema
        except (ValueError, MessageError) as error:  # as in `blaming`, which takes longer
            raise _refusal(sender, error) from error
        self.heard[sender] = said
        return message.content


_STRAY = object()


def _same(stamp: tuple[Any, ...], awaited: tuple[bytes | int | str, ...]) -> bool:
    """Compare types first: a foreign stamp may hold anything, such as an array."""
    for one, other in zip(stamp, awaited, strict=True):
        if type(one) is not type(other) or one != other:
            return False
    return True


def claims(message: Any, phase: str) -> bool:
    """Whether a message claims to belong to `phase`; nothing else is checked."""
    return type(message) is Message and type(message.phase) is str and message.phase == phase


@contextmanager
def blaming(sender: str) -> Iterator[None]:
    """Turn a fault in a party's message, found here or later, into a MisfitError that names the
    sender."""
    try:
        yield
    except (ValueError, MessageError) as error:
        raise _refusal(sender, error) from error


def _refusal(sender: str, error: Exception) -> MisfitError:
    return MisfitError(f"a message of {sender} is refused: {str(error) or type(error).__name__}")


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
