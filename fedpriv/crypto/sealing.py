"""Authenticated encryption: AES-256 in Galois/counter mode (NIST SP 800-38D).

A key must serve for one message only, because the nonce is constant. Two messages under one key
reveal their difference, and anybody can forge more. Every key here is derived for a single message.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TAG_BYTES = 16
"""Bytes that sealing adds to a message."""
NONCE = bytes(12)


class SealBrokenError(ValueError):
    """A sealed message was altered, or was sealed with another key."""


def seal(key: bytes, content: bytes) -> bytes:
    """`content` encrypted and authenticated, `TAG_BYTES` longer.

    key: 32 bytes that seal nothing else.
    """
    return AESGCM(key).encrypt(NONCE, content, None)


def unseal(key: bytes, sealed: bytes) -> bytes:
    """Decrypt and verify. Raises SealBrokenError for a message that this key has not sealed."""
    try:
        return AESGCM(key).decrypt(NONCE, sealed, None)
    except InvalidTag as error:
        raise SealBrokenError("its seal is broken") from error
