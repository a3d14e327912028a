"""Named random streams: one independent generator for each (seed, round, party, purpose).

A simulation never shares a generator between two uses, so the order in which parties run, a resumed run, or a new
consumer of randomness cannot shift anybody else's numbers. Streams are seedable and therefore public knowledge to
whoever knows the seed: never draw a key, a mask or a share from one.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

import numpy as np

SETUP = -1
"""The round number of everything that happens before the first round."""

DIRECT_BYTES = 4096
"""As many bytes come from the operating system itself; for more, a cipher is faster."""


@dataclass(frozen=True)
class Streams:
    """All random streams of one run with integer `seed`.

    system: draw what privacy rests on (`secret`) from the operating system instead; such a run cannot be repeated.
    """

    seed: int
    system: bool = False

    def _key(self, purpose: str, round: int, party: str) -> int:
        name = f"fedpriv/{self.seed}/{round}/{party}/{purpose}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def generator(self, purpose: str, round: int = SETUP, party: str = "") -> np.random.Generator:
        """A fresh numpy generator (Philox, 128-bit key) for this name; the same name always starts the same stream."""
        return np.random.Generator(np.random.Philox(key=self._key(purpose, round, party)))

    def torch_seed(self, purpose: str, round: int = SETUP, party: str = "") -> int:
        """A 63-bit seed for a `torch.Generator`, for draws that must happen on the training device."""
        return self._key(purpose, round, party) >> 65

    def secret(self, purpose: str, round: int, party: str = "") -> np.random.Generator | SystemGenerator:
        """The generator for draws that must stay unknown for privacy to hold: DP noise, the sample of users."""
        return SystemGenerator() if self.system else self.generator(purpose, round, party)


class SystemGenerator:
    """Uniform numbers from the operating system's generator, with numpy's names for the methods; `integers` are exact.

    Many bytes at once are the key stream of AES-256 in counter mode under a key from the operating system, made for
    them alone. There is no Gaussian: one in floating point has too few values to hide anything (see
    `fedpriv.mechanisms.grid_noise`).
    """

    def bytes(self, length: int) -> bytes:
        """`length` random bytes."""
        if length <= DIRECT_BYTES:
            return os.urandom(length)
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # A key for every call: nothing to keep secret afterwards, and nothing that a forked process could repeat.
        stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        return stream.update(bytes(length))

    def random(self, size: int) -> np.ndarray:
        """(size,) float64, uniform on the open interval (0, 1)."""
        bits = np.frombuffer(self.bytes(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52

    def integers(
        self, low: int, high: int | np.ndarray, size: int, dtype: type[np.int64] | type[np.uint64] = np.int64
    ) -> np.ndarray:
        """(size,) integers, uniform from low to high - 1; high is one for all or (size,). Raises ValueError unless
        every high is above low."""
        if not np.all(np.asarray(high) > low):
            raise ValueError(f"nothing lies from {low} to {high} - 1")
        # In the ring of 64 bits last - low is right even where it is too large for int64.
        widest = np.asarray(high - 1).astype(np.uint64) - np.uint64(low % 2**64)
        widest, mask = (np.broadcast_to(bound, size) for bound in (widest, _all_ones(widest)))
        drawn = self._words(size, mask)
        rejected = np.flatnonzero(drawn > widest)
        while len(rejected):
            drawn[rejected] = self._words(len(rejected), mask[rejected])
            rejected = rejected[drawn[rejected] > widest[rejected]]
        return (drawn + np.uint64(low % 2**64)).astype(dtype)

    def _words(self, size: int, mask: np.ndarray) -> np.ndarray:
        """(size,) uint64: random bits where the mask has ones, of no more bytes than the largest mask fills."""
        width = next(width for width in (1, 2, 4, 8) if int(mask.max(initial=0)) < 2 ** (8 * width))
        return np.asarray(np.frombuffer(self.bytes(width * size), dtype=f"u{width}") & mask)


def _all_ones(numbers: np.ndarray) -> np.ndarray:
    """Each uint64's next power of two less one: the smallest all-ones number that reaches it."""
    for shift in (1, 2, 4, 8, 16, 32):
        numbers = numbers | numbers >> np.uint64(shift)
    return numbers
