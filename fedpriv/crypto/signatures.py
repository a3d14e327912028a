"""Signatures: Ed25519 (RFC 8032)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedpriv.crypto.digest import digest
from fedpriv.parties.signer import Statement

KEY_BYTES = 32
SIGNATURE_BYTES = 64


@dataclass(frozen=True)
class VerificationKey:
    """A public key of 32 bytes. Raises ValueError for another length."""

    raw: bytes

    def __post_init__(self) -> None:
        _check_length(self.raw)

    def verifies(self, signature: bytes, statement: bytes) -> bool:
        """Whether the owner of the signing key has signed the statement."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, statement)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class SigningKey:
    """A private key of 32 bytes. Raises ValueError for another length."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_length(self.raw)

    @classmethod
    def generate(cls) -> SigningKey:
        """A fresh key, from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @property
    def verification_key(self) -> VerificationKey:
        """The public key that verifies this key's signatures."""
        return VerificationKey(
            Ed25519PrivateKey.from_private_bytes(self.raw).public_key().public_bytes_raw()
        )

    def sign(self, statement: bytes) -> bytes:
        """A signature, 64 bytes."""
        return Ed25519PrivateKey.from_private_bytes(self.raw).sign(statement)


@dataclass(frozen=True, repr=False)
class Ed25519Signer:
    """Signs a party's messages and verifies those of others.

    key: of this party.
    registry: verification keys by name.
    """

    key: SigningKey
    registry: Mapping[str, VerificationKey]

    @classmethod
    def of(cls, key: SigningKey, keys: Mapping[str, bytes]) -> Ed25519Signer:
        """A signer from its own key and everybody's verification keys, as bytes by name."""
        return cls(key, {name: VerificationKey(raw) for name, raw in keys.items()})

    def sign(self, statement: Statement) -> bytes:
        """64 bytes."""
        return self.key.sign(digest(*statement))

    def verifies(self, signer: str, signature: Any, statement: Statement) -> bool:
        """Whether `signature`, which may be anything, is that of `signer`."""
        known = self.registry.get(signer)
        return (
            known is not None
            and type(signature) is bytes
            and known.verifies(signature, digest(*statement))
        )


def _check_length(raw: bytes) -> None:
    if len(raw) != KEY_BYTES:
        raise ValueError(f"an Ed25519 key has {KEY_BYTES} bytes, not {len(raw)}")
