"""What parties of one process need not compute twice.

A simulation runs all parties in one process. Three kinds of work show nothing new there:

- Where the network hands over the very objects that were sent, and nobody records them, messages
  need no signatures (`parties.post`).
- A signature that this process has made or verified is valid for the same key, signature and
  statement for ever (`crypto.signatures`).
- Both parties of a key agreement compute the same secret (`crypto.x25519`).

Parties in processes of their own never do this: outside of `sharing` there is nothing to look up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

MOST_SIGNATURES = 2**15
"""Valid signatures that are remembered."""


@dataclass(eq=False)
class OneProcess:
    """What the parties of one session share.

    unsigned: whether messages between them need no signatures.
    valid: signatures that are known to be valid: key, context, signature, statement.
    exchanged: Diffie-Hellman secrets of this exchange, by both public keys. Only who has one of the
        private keys looks one up.
    """

    unsigned: bool = True
    valid: dict[tuple[bytes, bytes, bytes, bytes], None] = field(default_factory=dict)
    exchanged: dict[frozenset[bytes], bytes] = field(default_factory=dict)

    def remember(self, key: bytes, context: bytes, signature: bytes, statement: bytes) -> None:
        """Note a valid signature."""
        if len(self.valid) >= MOST_SIGNATURES:
            self.valid.clear()
        self.valid[key, context, signature, statement] = None


_CURRENT: ContextVar[OneProcess | None] = ContextVar("_CURRENT", default=None)


def one_process() -> OneProcess | None:
    """What the party that runs now shares with all others; None: it has a process of its own."""
    return _CURRENT.get()


@contextmanager
def sharing(what: OneProcess) -> Iterator[None]:
    """Context in which all parties run in this process."""
    token = _CURRENT.set(what)
    try:
        yield
    finally:
        _CURRENT.reset(token)
