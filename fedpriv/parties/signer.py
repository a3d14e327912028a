"""Who signs messages, as the gate sees it; `fedpriv.crypto` knows how."""

from __future__ import annotations

from typing import Any, Protocol

Statement = tuple[str | bytes | int, ...]


class Signer(Protocol):
    """A party's own signing key, and what checks the signatures of all others."""

    def sign(self, statement: Statement) -> bytes:
        """This party's signature."""

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        """Whether `signature`, which may be anything, is that party's under the statement."""
