"""A party's process under Ray, and the bytes that go in and out.

Everything travels as bytes, in pieces small enough for Ray to put into its calls. Ray keeps larger
values in its object store, which every process of a machine maps: each party could read there what
the others receive and send.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import ray

from fedpriv.engines.descriptions import restore
from fedpriv.engines.party_host import PartyHost
from fedpriv.parties.messages import decode, encode
from fedpriv.util.source_commit import package

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


class PartyProcess(PartyHost):
    """One party's process. Its first request is to open the party of a description, which is one
    message too. Reading a description imports the dataclasses that it names. Ray itself lets the
    program that starts the process run any code there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.request: list[bytes] = []
        self.answer = b""
        self.answering = False

    def prepare(self, folder: str, path: list[str], threads: int) -> tuple[str, str]:
        """Use the coordinator's folder and import path; called before anything is loaded. Returns
        the id of its node, and which fedpriv it has there."""
        if os.path.isdir(folder):
            os.chdir(folder)
        sys.path += [entry for entry in path if entry not in sys.path]
        os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded later
        return ray.get_runtime_context().get_node_id(), package()

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
            self.answer = self.reply(verb, request)
        finally:
            self.answering = False
        return len(self.answer).to_bytes(HEAD, "little") + self.answer[:PIECE]

    def give(self, start: int) -> bytes:
        """The piece of the reply that begins at byte `start`."""
        return self.answer[start : start + PIECE]

    @ray.method(concurrency_group="watch")
    def patience(self) -> bool:
        """Whether silence is no sign of a lost party: it computes, or waits for the rest of a
        request."""
        return not self.answering or self.participant is None or self.participant.computing

    def open(self, request: bytes) -> bytes:
        described, memory = decode(request)
        self.participant = restore(described).open(memory)
        return encode(("done", None))
