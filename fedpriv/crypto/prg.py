"""Pseudo-random bytes from a seed, and masks made of them: HKDF-SHA256, then AES-256 in counter
mode.

A seed has 256 bits. A mask is the key stream itself, read as integers modulo 2^32 or 2^64, so it is
uniform in the ring without rejection. The stream's key is derived from the seed and from the mask's
purpose. The same seed and purpose must never mask two different vectors.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fedpriv.util.streams import SystemGenerator

KEY_BYTES = 32
"""Bytes of a seed, and of the key that is derived from it."""
BLOCK_BYTES = 2**17
"""Bytes of key stream per step. They, the encrypted zeros and the block of the sum stay in the
processor's cache."""


def add_masks(
    vector: np.ndarray, plus: Iterable[bytes], minus: Iterable[bytes] = (), *, purpose: bytes = b""
) -> np.ndarray:
    """Add the masks of the seeds `plus` to `vector` (d,) uint32 or uint64, in place, and subtract
    those of the seeds `minus`."""
    streams: list[tuple[CipherContext, np.ufunc]] = [
        (key_stream(seed, purpose), np.add) for seed in plus
    ]
    streams += [(key_stream(seed, purpose), np.subtract) for seed in minus]
    length = BLOCK_BYTES // vector.itemsize
    zeros = bytes(BLOCK_BYTES)
    room = bytearray(BLOCK_BYTES)
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
    """A cipher that encrypts zeros to the key stream of seed and purpose."""
    key = HKDFExpand(SHA256(), KEY_BYTES, info=b"fedpriv mask/" + purpose).derive(seed)
    # The key serves for this stream alone, so the counter may start at zero.
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()


class SeededGenerator(SystemGenerator):
    """Draws from the key stream of a secret seed. With the seed the draws can be repeated; without
    it they are indistinguishable from the operating system's."""

    def __init__(self, seed: bytes, purpose: bytes) -> None:
        self._stream = key_stream(seed, purpose)

    def bytes(self, length: int) -> bytes:
        return self._stream.update(bytes(length))
