"""A party's process under Ray, and the bytes that go in and out.

Everything travels as bytes, in pieces small enough for Ray to put into its calls. Ray keeps larger
values in its object store, which every process of a machine maps: each party could read there what
the others receive and send.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import ray

from fedpriv.engines.base import Returned
from fedpriv.engines.bundles import bundled, unbundled
from fedpriv.engines.descriptions import restore
from fedpriv.engines.inprocess import answer
from fedpriv.errors import FedprivError
from fedpriv.parties.messages import decode, encode, register
from fedpriv.parties.party import Participant, Party

PIECE = 96 * 1024
"""Bytes of a piece; from 100 KiB on Ray uses its object store."""

PER_CALL = 16
"""Pieces in one call; with more, Ray takes longer for each."""

HEAD = 8
"""Bytes in front of a reply, with its length."""


def batches(content: bytes) -> Iterator[tuple[bytes, ...]]:
    """The pieces of `content`, grouped by call; at least one call."""
    for start in range(0, max(len(content), 1), PIECE * PER_CALL):
        end = min(len(content), start + PIECE * PER_CALL)
        yield tuple(content[at : min(at + PIECE, end)] for at in range(start, end, PIECE))


class PartyProcess:
    """One party's process. A request is a verb (open, begin, wake, checkpoint) and bytes; a reply
    is bytes.

    Everything is data: a description, a task, a memory and a reply are one message of
    `parties.messages` each, and mail in both directions is a bundle of messages. Reading a
    description imports the dataclasses that it names; reading the rest runs no code. Ray itself
    lets the program that starts the process run any code there.
    """

    def __init__(self) -> None:
        self.participant: Participant | None = None
        self.party: Party | None = None
        self.request: list[bytes] = []
        self.reply = b""
        self.answering = False

    def prepare(self, folder: str, path: list[str], threads: int) -> None:
        """Use the coordinator's folder and import path; called before anything is loaded."""
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.path += [entry for entry in path if entry not in sys.path]
        os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded later

    def take(self, verb: str, *pieces: bytes) -> None:
        """The next pieces of a request."""
        self.request += pieces

    def serve(self, verb: str, *pieces: bytes) -> bytes:
        """The last pieces of a request. Returns the reply's length in `HEAD` bytes, and its first
        piece."""
        self.take(verb, *pieces)
        request = b"".join(self.request)
        self.request.clear()
        self.answering = True
        try:
            self.reply = self._reply(verb, request)
        finally:
            self.answering = False
        return len(self.reply).to_bytes(HEAD, "little") + self.reply[:PIECE]

    def give(self, start: int) -> bytes:
        """The piece of the reply that begins at byte `start`."""
        return self.reply[start : start + PIECE]

    @ray.method(concurrency_group="watch")
    def patience(self) -> bool:
        """Whether silence is no sign of a lost party: it computes, or waits for the rest of a
        request."""
        return not self.answering or self.participant is None or self.participant.computing

    def _reply(self, verb: str, request: bytes) -> bytes:
        try:
            reply: bytes = getattr(self, f"_{verb}")(request)
            return reply
        except Exception as error:
            return encode(("raised", failure_of(error)))

    def _open(self, request: bytes) -> bytes:
        self.party = None
        self.participant = None
        described, memory = decode(request)
        self.participant = restore(described).open(memory)
        return encode(("done", None))

    def _begin(self, request: bytes) -> bytes:
        assert self.participant is not None
        self.party = None
        self.party = self.participant.take_part(decode(request))
        return encode(("done", None))

    def _wake(self, request: bytes) -> bytes:
        """request: a bundle of mail, or nothing the first time."""
        assert self.party is not None
        said = answer(self.party, unbundled(request) if request else None)
        if isinstance(said, Returned):
            return encode(("returned", said.learned))
        return bundled(said)

    def _checkpoint(self, request: bytes) -> bytes:
        assert self.participant is not None
        return encode(("done", dict(self.participant.checkpoint())))


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


def failure_of(error: Exception) -> PartyFailure:
    """The exception that is being handled, as text."""
    ancestry = tuple(_title(cls) for cls in type(error).__mro__)
    return PartyFailure(ancestry, _printable(str(error)), _printable(traceback.format_exc()))


def raise_failure(party: str, failure: PartyFailure) -> NoReturn:
    """Raise a party's exception here, with the party's traceback as a note.

    Its class is the exception's own or nearest FedprivError that this process knows; otherwise
    RuntimeError, with the party's name in the text.
    """
    known = {_title(cls): cls for cls in _family(FedprivError)}
    cls = next((known[title] for title in failure.ancestry if title in known), None)
    if cls is None:
        error: Exception = RuntimeError(f"{party}: {failure.ancestry[0]}: {failure.text}")
    else:
        error = cls.__new__(cls, failure.text)  # __init__ may need other arguments
    error.add_note(failure.trace)
    raise error


def _family(cls: type[FedprivError]) -> Iterator[type[FedprivError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _family(child)


def _title(cls: type) -> str:
    return (
        cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    )


def _printable(text: str) -> str:
    return text.encode(errors="replace").decode()
