"""Who signs messages, as the gate sees it; `fedpriv.crypto` knows how."""

from __future__ import annotations

from typing import Any, Protocol

from fedpriv.parties.messages import digest_of

Statement = tuple[str | bytes | int, ...]


class Signer(Protocol):
    """A party's own signing key, and what checks the signatures of all others."""

    def sign(self, statement: Statement) -> bytes:
        """This party's signature."""

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        """Whether `signature`, which may be anything, is that party's under the statement."""


class Checksum:
    """What stands in a signature's place where nobody has a key: SHA-256 of the statement. It finds
    what was damaged or put in another's place by mistake; whoever changes a message on purpose can
    make a new one."""

    def sign(self, statement: Statement) -> bytes:
        return digest_of(statement)

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        return type(signature) is bytes and signature == digest_of(statement)


CHECKSUM = Checksum()
