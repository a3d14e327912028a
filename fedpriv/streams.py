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
    """Uniform and Gaussian numbers from the operating system's generator, with numpy's names for the two methods.

    The Gaussian is the inverse normal CDF of a uniform with 52 bits: its tails end near 8.2 standard deviations, and
    like every floating-point Gaussian its low-order bits are not those of a real one.
    """

    def random(self, size: int) -> np.ndarray:
        """(size,) float64, uniform on the open interval (0, 1)."""
        bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52

    def standard_normal(self, size: int) -> np.ndarray:
        """(size,) float64, standard normal."""
        from scipy.special import ndtri

        return ndtri(self.random(size))
