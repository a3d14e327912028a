"""Key agreement of two parties: X25519 (RFC 7748), then HKDF-SHA256 (RFC 5869)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedpriv.parties.one_process import one_process

KEY_BYTES = 32
SEED_BYTES = 32
_ANY = X25519PrivateKey.generate()
"""A key whose agreements nobody uses: they fail for a public key of low order."""


@dataclass(frozen=True)
class PublicKey:
    """A public key of 32 bytes. Its uses raise ValueError for another length."""

    raw: bytes

    def require_order(self) -> None:
        """Raise ValueError for a key of low order: with it everybody would derive the same seed."""
        try:
            _ANY.exchange(self._key)
        except ValueError as error:
            raise ValueError("a public key of low order") from error

    @cached_property
    def _key(self) -> X25519PublicKey:
        return X25519PublicKey.from_public_bytes(self.raw)


@dataclass(frozen=True)
class PrivateKey:
    """A private key of 32 bytes. Its uses raise ValueError for another length."""

    raw: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> PrivateKey:
        """A fresh key, from the operating system's randomness."""
        key = X25519PrivateKey.generate()
        made = cls(key.private_bytes_raw())
        vars(made)["_key"] = key
        return made

    @cached_property
    def public(self) -> PublicKey:
        """The public key that belongs to this one."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def derive_shared_seed(self, peer: PublicKey, purpose: bytes) -> bytes:
        """The 32-byte seed that both parties derive, each from its own private key and the other's
        public key.

        Raises ValueError for a public key of low order: with it everybody would derive the same
        seed.
        """
        secret = self._exchanged(peer)
        return HKDF(SHA256(), SEED_BYTES, salt=None, info=b"fedpriv seed/" + purpose).derive(secret)

    def _exchanged(self, peer: PublicKey) -> bytes:
        """The Diffie-Hellman secret with the peer. It is kept as long as this key, which gives it;
        parties of one process compute it once a pair."""
        secret = self._secrets.get(peer.raw)
        if secret is None:
            shared = one_process()
            pair = frozenset((self.public.raw, peer.raw))
            secret = None if shared is None else shared.exchanged.get(pair)
            if secret is None:
                secret = self._key.exchange(peer._key)
                if shared is not None:
                    shared.exchanged[pair] = secret
            self._secrets[peer.raw] = secret
        return secret

    @cached_property
    def _key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.raw)

    @cached_property
    def _secrets(self) -> dict[bytes, bytes]:
        return {}
