"""Named random streams: one independent generator for each (seed, round, party, purpose).

A simulation never shares a generator between two uses, so the order in which parties run, a resumed run, or a new
consumer of randomness cannot shift anybody else's numbers. Streams are seedable and therefore public knowledge to
whoever knows the seed: never draw a key, a mask or a share from one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

SETUP = -1
"""The round number of everything that happens before the first round."""


@dataclass(frozen=True)
class Streams:
    """All random streams of one simulation with integer `seed`."""

    seed: int

    def _key(self, purpose: str, round: int, party: str) -> int:
        name = f"fedpriv/{self.seed}/{round}/{party}/{purpose}".encode()
        return int.from_bytes(hashlib.blake2b(name, digest_size=16).digest(), "little")

    def generator(self, purpose: str, round: int = SETUP, party: str = "") -> np.random.Generator:
        """A fresh numpy generator (Philox, 128-bit key) for this name; the same name always starts the same stream."""
        return np.random.Generator(np.random.Philox(key=self._key(purpose, round, party)))

    def torch_seed(self, purpose: str, round: int = SETUP, party: str = "") -> int:
        """A 63-bit seed for a `torch.Generator`, for draws that must happen on the training device."""
        return self._key(purpose, round, party) >> 65
