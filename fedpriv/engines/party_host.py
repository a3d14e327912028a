"""A party in a process of its own: requests and replies as bytes, whatever carries them.

A request is a verb (open, begin, wake, checkpoint) and bytes; a reply is bytes. Everything is
data: a task, a memory and a reply are one message of `parties.messages` each, and mail in both
directions is a bundle of messages. Reading them runs no code.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from fedpriv.engines.base import Answer, Returned, Session
from fedpriv.engines.bundles import MARK, bundled, unbundled
from fedpriv.engines.inprocess import answer
from fedpriv.errors import AggregationAbortedError, FedprivError, RefusedError
from fedpriv.parties.messages import MessageError, decode, encode, register
from fedpriv.parties.party import Mail, Memory, Participant, Party
from fedpriv.util.printing import printable


class PartyHost(ABC):
    """The party of this process, and its part in the current exchange."""

    def __init__(self) -> None:
        self.participant: Participant | None = None
        self.party: Party | None = None
        self.woken = False

    def reply(self, verb: str, request: bytes) -> bytes:
        """The reply to a request. An exception is a reply too: RefusedError for a request that no
        coordinator makes, or not now."""
        requests: dict[str, Callable[[bytes], bytes]] = {
            "open": self._open,
            "begin": self._begin,
            "wake": self._wake,
            "checkpoint": self._checkpoint,
        }
        try:
            if verb not in requests:
                raise RefusedError(f"there is no request {verb[:20]!r}")
            return requests[verb](request)
        except Exception as error:
            return encode(("raised", self.failure(error)))

    @abstractmethod
    def open(self, request: bytes) -> bytes:
        """Create the participant anew."""

    def close(self) -> None:
        """End the party, so that another life of it can open."""
        if self.participant is not None:
            self.participant.close()
        self.party = None
        self.participant = None

    def told(self, learned: Any) -> Any:
        """What is told of what the party has learned."""
        return learned

    def failure(self, error: Exception) -> PartyFailure:
        """What is told of an exception that is being handled."""
        return failure_of(error)

    def _open(self, request: bytes) -> bytes:
        self.close()
        return self.open(request)

    def _begin(self, request: bytes) -> bytes:
        self.party = None
        task = _read(decode, request)
        self.party = self._present.take_part(task)
        self.woken = False
        return encode(("done", None))

    def _wake(self, request: bytes) -> bytes:
        """request: a bundle of mail, or nothing the first time."""
        if self.party is None or self.woken != bool(request):
            raise RefusedError("a request out of turn")
        mail = _read(unbundled, request) if request else None
        self.woken = True
        said = answer(self.party, mail)
        if isinstance(said, Returned):
            return encode(("returned", self.told(said.learned)))
        return bundled(said)

    def _checkpoint(self, request: bytes) -> bytes:
        return encode(("done", dict(self._present.checkpoint())))

    @property
    def _present(self) -> Participant:
        if self.participant is None:
            raise RefusedError("a request before the party is open")
        return self.participant


def _read(reader: Callable[[bytes], Any], request: bytes) -> Any:
    try:
        return reader(request)
    except MessageError as error:
        raise RefusedError(f"a request that cannot be read ({error})") from error


class HostedSession(Session):
    """A session with parties at hosts in processes of their own.

    reasons: by lost party, why it is gone.
    """

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    @abstractmethod
    def _ask(self, verb: str, requests: Mapping[str, bytes]) -> dict[str, tuple[str, Any]]:
        """Each party's reply to its request, as `read_reply` gives it; lost parties are missing."""

    @property
    def lost(self) -> frozenset[str]:
        return frozenset(self.reasons)

    def why_lost(self, name: str) -> str:
        return self.reasons[name]

    def _start(self, memories: Mapping[str, Memory]) -> None:
        """Create the parties for the first time. Raises FedprivError if one cannot be started."""
        self.reopen(memories)
        if self.reasons:
            name, why = min(self.reasons.items())
            raise FedprivError(f"{name} could not be started: {why}")

    def begin(self, tasks: Mapping[str, Any]) -> None:
        self._ask("begin", {name: encode(task) for name, task in tasks.items()})

    def wake(self, mail: Mapping[str, Mail | None]) -> dict[str, Answer | None]:
        requests = {
            name: b"" if letters is None else bundled(letters) for name, letters in mail.items()
        }
        answers: dict[str, Answer | None] = dict.fromkeys(sorted(mail))
        for name, (kind, content) in self._ask("wake", requests).items():
            answers[name] = Returned(content) if kind == "returned" else content
        return answers


@register
@dataclass(frozen=True)
class PartyFailure:
    """An exception as text.

    ancestry: names of its class and of the class's bases, nearest first.
    text: its message.
    trace: its traceback.
    """

    ancestry: tuple[str, ...]
    text: str
    trace: str


REPLIES: dict[str, dict[str, type]] = {
    "open": {"done": type(None)},
    "begin": {"done": type(None)},
    "wake": {"returned": object},
    "checkpoint": {"done": dict},
}
"""Names of the replies to each request, with the type of their content. Any request may be answered
by an exception, and wake by a bundle of messages."""


def read_reply(verb: str, raw: bytes, parties: int) -> tuple[str, Any]:
    """A party's answer. Raises ValueError, or MessageError, for bytes that no `PartyHost` sends."""
    if verb == "wake" and raw[:1] == MARK:
        return "sent", unbundled(raw, parties)
    reply = decode(raw)
    types = {"raised": PartyFailure} | REPLIES[verb]
    if type(reply) is not tuple or len(reply) != 2 or type(reply[0]) is not str:
        raise ValueError("not a name and a content")
    name, content = reply
    if name not in types or not isinstance(content, types[name]):
        raise ValueError(f"{name[:20]!r} with {type(content).__name__} to {verb}")
    if isinstance(content, PartyFailure):
        _require_texts((content.ancestry, content.text, content.trace))
    return name, content


def _require_texts(fields: tuple[Any, ...]) -> None:
    """Raise ValueError for a failure whose fields are of other types."""
    ancestry, *texts = fields
    if type(ancestry) is not tuple or {str} != {*map(type, (*ancestry, *texts))}:
        raise ValueError("a failure that is not made of texts")


def failure_of(error: Exception) -> PartyFailure:
    """The exception that is being handled, as text."""
    ancestry = tuple(_title(cls) for cls in type(error).__mro__)
    return PartyFailure(ancestry, _printable(str(error)), _printable(traceback.format_exc()))


LONGEST = 300
"""Characters that are shown of another party's text."""


def in_words(failure: PartyFailure) -> str:
    """What a party in another's hands says of its failure, in one short line."""
    return printable(" ".join(failure.text.split()))[:LONGEST]


def aborting(
    party: str,
    failure: PartyFailure,
    base: type[AggregationAbortedError] = AggregationAbortedError,
) -> AggregationAbortedError | None:
    """The exception of a party in another's hands, with its name, if it is one of these, which end
    a round without a sum; None for any other."""
    cls = _nearest(failure, base)
    if cls is None:
        return None
    error: AggregationAbortedError = cls.__new__(cls, f"{party} says: {in_words(failure)}")
    return error


def raise_failure(party: str, failure: PartyFailure) -> NoReturn:
    """Raise a party's exception here, with the party's traceback as a note.

    Its class is the exception's own or nearest FedprivError that this process knows; otherwise
    RuntimeError, with the party's name in the text.
    """
    cls = _nearest(failure, FedprivError)
    if cls is None:
        error: Exception = RuntimeError(f"{party}: {failure.ancestry[0]}: {failure.text}")
    else:
        error = cls.__new__(cls, failure.text)  # __init__ may need other arguments
    error.add_note(failure.trace)
    raise error


def _nearest(failure: PartyFailure, base: type[FedprivError]) -> Any:
    """The failure's class or its nearest base that this process knows below `base`; None: none."""
    known = {_title(cls): cls for cls in _family(base)}
    return next((known[title] for title in failure.ancestry if title in known), None)


def _family(cls: type[Any]) -> Iterator[type[Any]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def _title(cls: type) -> str:
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
