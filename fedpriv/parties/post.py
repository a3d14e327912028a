"""The gate that every message of an exchange passes, on its way out and on its way in.

Outgoing messages carry a stamp: the session (everything since the last set-up), the round, the
query's place in the round and the phase. They are signed.

An incoming message is read only if its stamp is the expected one, its sender is expected and the
signature is that sender's. Its content must then fit the expected schema. A message with another
stamp (late, repeated or replayed) counts as not sent. Any other fault ends the exchange and names
the sender.

A run's parties all have keys (`crypto.roster`). A checksum, which anybody can make, serves tests of
single parties alone.

Where all parties run in one process, a message is sealed instead (`parties.one_process`): it knows
who made it for whom, and is hashed and signed as soon as somebody reads its signature. A receiver
takes a sealed message only as the object that left its sender, under the key that it expects. Any
copy and any change is a message without a seal, and is verified.
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

    def __getattr__(self, name: str) -> bytes:
        """The signature of a sealed message."""
        seal = vars(self).get("_seal")
        if name != "signature" or seal is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        signature: bytes = seal.signature(vars(self)["_receiver"])
        object.__setattr__(self, "signature", signature)
        return signature


@dataclass(eq=False)
class Hashed:
    """A content that is hashed once, when somebody asks for its digest.

    content: of messages.
    """

    content: Any

    @cached_property
    def digest(self) -> bytes:
        """Of the content."""
        return digest_of(self.content)


@dataclass(eq=False)
class Seal:
    """What all messages with one content share that a party of this process sends.

    post: gate of the sender.
    phase: of the messages.
    said: their content.
    fits: the schema that the content has been found to fit.
    """

    post: Post
    phase: str
    said: Hashed
    fits: Schema | None = None

    @cached_property
    def size(self) -> int:
        """Of an encoded message. Raises MessageError for a content without an encoding."""
        post = self.post
        bare = _bare_size(post.session, *post.serial, self.phase, post.signer.signature_bytes)
        return bare + size_of(self.said.content, depth=CONTENT_DEPTH)

    def signature(self, receiver: str) -> bytes:
        """The signature for one receiver."""
        return self.post.signer.sign(
            self.post.statement(self.phase, self.post.name, receiver, self.said.digest)
        )

    def message(self, receiver: str) -> Message:
        """The message for one receiver, which is signed once somebody reads the signature."""
        message = object.__new__(Message)
        post = self.post
        round, place = post.serial
        vars(message).update(
            session=post.session,
            round=round,
            place=place,
            phase=self.phase,
            content=self.said.content,
            _seal=self,
            _receiver=receiver,
        )
        return message


class Sizes:
    """Sizes of encoded messages in the order of sending. Messages with one content for many
    receivers follow each other, and differ in nothing that has another size."""

    def __init__(self) -> None:
        self._last: tuple[Message, int] | None = None

    def of(self, message: Any) -> int:
        """len(encode(message)); a sealed message stays unsigned. Raises MessageError."""
        if type(message) is not Message:
            return size_of(message)
        seal: Seal | None = vars(message).get("_seal")
        if seal is not None:
            return seal.size
        if self._last is None or not _same_size(message, self._last[0]):
            self._last = message, size_of(message)
        return self._last[1]


def _same_size(one: Message, other: Message) -> bool:
    """Whether both are as one sender sends one content to two receivers."""
    if one.content is not other.content:
        return False
    parts = [(m.session, m.round, m.place, m.phase, m.signature) for m in (one, other)]
    if any(tuple(map(type, each)) != (bytes, int, int, str, bytes) for each in parts):
        return False  # anything may come from another process
    (*stamp, signature), (*awaited, its) = parts
    return stamp == awaited and len(signature) == len(its)


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
    heard: the last content read from each sender, or its digest.
    """

    name: str
    session: bytes
    serial: Serial = (0, 0)
    signer: Signer = CHECKSUM
    strays: dict[str, int] = field(default_factory=dict)
    heard: dict[str, bytes | Hashed] = field(default_factory=dict)

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
        heard = self.heard[sender]
        return heard.digest if isinstance(heard, Hashed) else heard

    def signed(self, phase: str, mail: Mail) -> Mail:
        """Contents by receiver as signed messages of `phase`."""
        shared = one_process()
        if shared is not None and shared.sealed:
            return self._sealed(phase, mail)
        digests: dict[int, bytes] = {}  # content for many receivers is hashed once
        messages = {}
        for receiver, content in mail.items():
            if id(content) not in digests:
                digests[id(content)] = digest_of(content)
            signature = self.signer.sign(
                self.statement(phase, self.name, receiver, digests[id(content)])
            )
            messages[receiver] = Message(self.session, *self.serial, phase, content, signature)
        return messages

    def _sealed(self, phase: str, mail: Mail) -> Mail:
        seals: dict[int, Seal] = {}
        messages = {}
        for receiver, content in mail.items():
            seal = seals.get(id(content))
            if seal is None:
                seals[id(content)] = seal = Seal(self, phase, Hashed(content))
            messages[receiver] = seal.message(receiver)
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
            seal = self._seal_of(sender, message)
            if seal is not None:
                if seal.fits is not expected.schema:  # one content may be for many receivers
                    expected.schema.check(message.content)
                    seal.fits = expected.schema
                self.heard[sender] = seal.said
                return message.content
            digest = digest_of(message.content)
            statement = self.statement(expected.phase, sender, self.name, digest)
            if not self.signer.verifies(sender, message.signature, statement):
                raise SchemaError("the signature is not its own")
            expected.schema.check(message.content)
        except (ValueError, MessageError) as error:  # as in `blaming`, which takes longer
            raise _refusal(sender, error) from error
        self.heard[sender] = digest
        return message.content

    def _seal_of(self, sender: str, message: Message) -> Seal | None:
        """The seal of a message that is as its sender made it for this party, and whose signature
        would be valid; None: it must be verified."""
        shared = one_process()
        seal: Seal | None = vars(message).get("_seal")
        if shared is None or not shared.sealed or seal is None:
            return None
        own = seal.post.name == sender and vars(message)["_receiver"] == self.name
        same = message.content is seal.said.content and "signature" not in vars(message)
        stamped = message.phase == seal.phase and message.session == seal.post.session
        stamped = stamped and (message.round, message.place) == seal.post.serial
        right = own and same and stamped and self.signer.accepts(sender, seal.post.signer)
        return seal if right else None


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
