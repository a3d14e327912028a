"""Key agreement of two parties: X25519 (RFC 7748), then HKDF-SHA256 (RFC 5869)."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
SEED_BYTES = 32
_ANY = X25519PrivateKey.generate()
"""A key whose agreements nobody uses: they fail for a public key of low order."""


@dataclass(frozen=True)
class PublicKey:
    """A public key of 32 bytes. Raises ValueError for another length."""

    raw: bytes

    def __post_init__(self) -> None:
        _check_length(self.raw)

    def require_order(self) -> None:
        """Raise ValueError for a key of low order: with it everybody would derive the same seed."""
        try:
            _ANY.exchange(X25519PublicKey.from_public_bytes(self.raw))
        except ValueError as error:
            raise ValueError("a public key of low order") from error


@dataclass(frozen=True)
class PrivateKey:
    """A private key of 32 bytes. Raises ValueError for another length."""

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_length(self.raw)

    @classmethod
    def generate(cls) -> PrivateKey:
        """A fresh key, from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @property
    def public(self) -> PublicKey:
        """The public key that belongs to this one."""
        return PublicKey(
            X25519PrivateKey.from_private_bytes(self.raw).public_key().public_bytes_raw()
        )

    def derive_shared_seed(self, peer: PublicKey, purpose: bytes) -> bytes:
        """The 32-byte seed that both parties derive, each from its own private key and the other's
        public key.

        Raises ValueError for a public key of low order: with it everybody would derive the same
        seed.
        """
        secret = X25519PrivateKey.from_private_bytes(self.raw).exchange(
            X25519PublicKey.from_public_bytes(peer.raw)
        )
        return HKDF(SHA256(), SEED_BYTES, salt=None, info=b"fedpriv seed/" + purpose).derive(secret)


def _check_length(raw: bytes) -> None:
    if len(raw) != KEY_BYTES:
        raise ValueError(f"an X25519 key has {KEY_BYTES} bytes, not {len(raw)}")
