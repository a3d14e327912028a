"""Masks that two parties can make and nobody else: X25519 key agreement, HKDF-SHA256, and AES-256 in counter mode.

A seed has 256 bits. A mask is the key stream itself, read as integers modulo 2^32 or 2^64, so it is uniform in the ring
without any rejection. The stream's key is derived from the seed and from what the mask is for; the same words must
never mask two different vectors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

KEY_BYTES = 32
BLOCK_BYTES = 2**17
"""Key stream made at a time: it, the zeros that it encrypts and the sum's block stay in the processor's cache."""


def new_key() -> tuple[bytes, bytes]:
    """A fresh X25519 private key and its public key, 32 bytes each."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def public_key(private: bytes) -> bytes:
    """The public key that belongs to a private one."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agree(private: bytes, peer: bytes, purpose: bytes) -> bytes:
    """The 32-byte seed that both parties derive, each from its own private key and the other's public one.

    Raises ValueError for a public key with which everybody would agree on the same secret.
    """
    secret = X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(peer))
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"fedpriv seed/" + purpose).derive(secret)


def digest(*parts: str | bytes | int) -> bytes:
    """32 bytes that stand for a list of values; no two lists run together to the same bytes."""
    state = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.digest()


def use_masks_once(name: str, round: int, memory: dict[str, Any]) -> None:
    """Note in party `name`'s memory that its masks of `round` are spent. Raises RuntimeError when they, or those of a
    later round, were before: two messages under one mask give their difference away."""
    if round <= memory.get("rounds_masked", 0):
        raise RuntimeError(f"{name} has used its masks of round {round} already")
    memory["rounds_masked"] = round


def add_masks(
    vector: np.ndarray, plus: Iterable[bytes], minus: Iterable[bytes] = (), purpose: bytes = b""
) -> np.ndarray:
    """Add the masks of some seeds to `vector` (d,) uint32 or uint64, in place, and subtract those of others."""
    streams = [(key_stream(seed, purpose), np.add) for seed in plus]
    streams += [(key_stream(seed, purpose), np.subtract) for seed in minus]
    length = BLOCK_BYTES // vector.itemsize
    zeros, room = bytes(BLOCK_BYTES), bytearray(BLOCK_BYTES)
    little = vector.dtype.newbyteorder("<")  # parties on different machines must agree
    for start in range(0, len(vector), length):
        block = vector[start : start + length]
        size = block.nbytes
        mask = np.frombuffer(room, dtype=little, count=len(block))
        for stream, combine in streams:
            stream.update_into(memoryview(zeros)[:size], memoryview(room)[:size])
            combine(block, mask, out=block)
    return vector


def key_stream(seed: bytes, purpose: bytes) -> CipherContext:
    """What encrypts zeros to the bytes that everybody with the seed can make, always the same from the start."""
    key = HKDFExpand(SHA256(), KEY_BYTES, info=b"fedpriv mask/" + purpose).derive(seed)
    # The key serves for this stream alone, so the counter may start at zero.
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
