"""Signatures: Ed25519 (RFC 8032)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedpriv.crypto.digest import digest
from fedpriv.parties.one_process import one_process
from fedpriv.parties.signer import Signer, Statement

KEY_BYTES = 32
SIGNATURE_BYTES = 64
FIELD = 2**255 - 19
_EIGHT = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
LOW_ORDER = frozenset({0, 1, FIELD - 1, _EIGHT, FIELD - _EIGHT})
"""Second coordinates of the points of edwards25519 whose order divides 8. Under such a key, a
signature that needs no private key is valid for many statements."""


@dataclass(frozen=True)
class VerificationKey:
    """A public key.

    raw: 32 bytes.
    context: what its signatures are bound to, such as a run; empty: nothing.

    Raises ValueError for another length.
    """

    raw: bytes
    context: bytes = b""

    def __post_init__(self) -> None:
        _check_length(self.raw)

    @property
    def fingerprint(self) -> str:
        """The first 16 bytes of the key's SHA-256, in groups of four hexadecimal digits."""
        text = hashlib.sha256(self.raw).hexdigest()[:32]
        return "-".join(text[at : at + 4] for at in range(0, 32, 4))

    @property
    def low_order(self) -> bool:
        """Whether anybody can forge signatures under this key."""
        return int.from_bytes(self.raw, "little") % 2**255 % FIELD in LOW_ORDER

    def verifies(self, signature: bytes, statement: bytes) -> bool:
        """Whether the owner of the signing key has signed the statement in this context."""
        shared = one_process()
        known = self.raw, self.context, signature, statement
        if shared is not None and known in shared.valid:
            return True
        try:
            self._public.verify(signature, _bound(self.context, statement))
        except InvalidSignature:
            return False
        if shared is not None:
            shared.remember(*known)
        return True

    @cached_property
    def _public(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)


@dataclass(frozen=True)
class SigningKey:
    """A private key.

    raw: 32 bytes.
    context: what its signatures are bound to; empty: nothing.

    Raises ValueError for another length.
    """

    raw: bytes = field(repr=False)
    context: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        _check_length(self.raw)

    @classmethod
    def generate(cls) -> SigningKey:
        """A fresh key, from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @cached_property
    def verification_key(self) -> VerificationKey:
        """The public key that verifies this key's signatures."""
        return VerificationKey(self._private.public_key().public_bytes_raw(), self.context)

    def sign(self, statement: bytes) -> bytes:
        """A signature, 64 bytes."""
        signed = _bound(self.context, statement)
        signature = self._private.sign(signed)
        if (shared := one_process()) is not None:
            shared.remember(self.verification_key.raw, self.context, signature, statement)
        return signature

    @cached_property
    def _private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.raw)


@dataclass(frozen=True, repr=False)
class Ed25519Signer:
    """Signs a party's messages and verifies those of others.

    key: of this party.
    registry: verification keys by name.
    """

    key: SigningKey
    registry: Mapping[str, VerificationKey]

    signature_bytes = SIGNATURE_BYTES

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

    def accepts(self, signer: str, other: Signer) -> bool:
        own = self.registry.get(signer)
        return type(other) is Ed25519Signer and other.key.verification_key == own


def _bound(context: bytes, statement: bytes) -> bytes:
    return digest("fedpriv context", context, statement) if context else statement


def _check_length(raw: bytes) -> None:
    if len(raw) != KEY_BYTES:
        raise ValueError(f"an Ed25519 key has {KEY_BYTES} bytes, not {len(raw)}")
