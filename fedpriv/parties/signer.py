"""The interface of signers; `fedpriv.crypto` implements signatures."""

from __future__ import annotations

from typing import Any, Protocol

from fedpriv.parties.messages import digest_of

Statement = tuple[str | bytes | int, ...]


class Signer(Protocol):
    """Signs for one party, and verifies the signatures of all parties.

    signature_bytes: length of a signature.
    """

    signature_bytes: int

    def sign(self, statement: Statement) -> bytes:
        """This party's signature of a statement."""

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        """Whether `signature`, which may be anything, is `signer`'s for this statement."""

    def accepts(self, signer: str, other: Signer) -> bool:
        """Whether `verifies` would accept what `other` signs as `signer`'s."""


class Checksum:
    """Replaces signatures where nobody has a key: SHA-256 of the statement. It finds accidental
    damage and misdirection. An attacker can make a new checksum."""

    signature_bytes = 32

    def sign(self, statement: Statement) -> bytes:
        return digest_of(statement)

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        return type(signature) is bytes and signature == digest_of(statement)

    def accepts(self, signer: str, other: Signer) -> bool:
        return type(other) is Checksum


CHECKSUM = Checksum()
