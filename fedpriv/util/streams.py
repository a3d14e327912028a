"""Named random streams: one independent generator for each (seed, round, party, purpose).

No generator of a simulation is used for two purposes. So neither the order of the parties, nor a
resumed run, nor a new use of randomness changes the numbers of others. Everyone who knows the seed
knows the streams: never draw a key, a mask or a share from one.

What a unit of privacy (a user, a record) draws comes from a key of its own (`unit_keys`). It must
not come from its place in a generator's output: removing one unit would shift the draws of all
later ones, and the sensitivity of their sum would include all of them. Numbers below a key are
named by counters (`branch`) and need no state.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

SETUP = -1
"""The round number of the set-up, before the first round."""
GAMMA = 0x9E3779B97F4A7C15
"""SplitMix64's step from one counter to the next."""
FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""SplitMix64's multipliers."""

DIRECT_BYTES = 4096
"""Fewer bytes come directly from the operating system. For more, a cipher is faster."""


@dataclass(frozen=True)
class Streams:
    """All random streams of one run.

    seed: integer that names the streams.
    system: draw noise and samples (`secret`) from the operating system instead. Such a run cannot
        be repeated.
    """

    seed: int
    system: bool = False

    def _digest(self, purpose: str, round: int, party: str) -> bytes:
        name = f"fedpriv/{self.seed}/{round}/{party}/{purpose}".encode()
        return hashlib.blake2b(name, digest_size=16).digest()

    def _key(self, purpose: str, round: int, party: str) -> int:
        return int.from_bytes(self._digest(purpose, round, party), "little")

    def generator(self, purpose: str, round: int = SETUP, party: str = "") -> np.random.Generator:
        """A new numpy generator (Philox, 128-bit key). The same arguments always give the same
        stream."""
        key: Any = _Key(self._digest(purpose, round, party))  # numpy's types lack the protocol
        return np.random.Generator(np.random.Philox(key))

    def torch_seed(self, purpose: str, round: int = SETUP, party: str = "") -> int:
        """A 63-bit seed for a `torch.Generator`, for draws on the training device."""
        return self._key(purpose, round, party) >> 65

    def unit_keys(self, purpose: str, round: int, party: str, units: np.ndarray) -> np.ndarray:
        """(k,) uint64: a key for each of `units`, (k,) int64. The key of a unit does not depend on
        the other units; distinct units have distinct keys. With `system`, the keys are new in every
        call.

        SplitMix64 is not a cipher: use the keys for batch orders, dropout and simulated sampling,
        never for noise or masks.
        """
        [(low, high)] = self.unit_bases(purpose, round, [party])
        return mix64(mix64(units.astype(np.uint64) + low) + high)

    def first_keys(
        self, purpose: str, round: int, parties: Sequence[str], units: np.ndarray
    ) -> np.ndarray:
        """(k,) uint64: for each of k parties the key that `unit_keys` gives its one unit.

        units: (k,) int64, one a party.

        Raises ValueError for another number of units: a party's key would be that of all of them.
        """
        if units.shape != (len(parties),):
            raise ValueError(
                f"units of shape {units.shape} for {len(parties)} parties, not one each"
            )
        bases = self.unit_bases(purpose, round, parties)
        return mix64(mix64(units.astype(np.uint64) + bases[:, 0]) + bases[:, 1])

    def unit_bases(self, purpose: str, round: int, parties: Sequence[str]) -> np.ndarray:
        """(k, 2) uint64: for each of k parties what the keys of its units are made of. The only
        place that decides where these keys come from, so that a subclass changes all of them."""
        drawn = (
            os.urandom(16 * len(parties))
            if self.system
            else b"".join(self._digest(purpose, round, party) for party in parties)
        )
        return np.frombuffer(drawn, dtype="<u8").reshape(len(parties), 2)

    def unit_coins(
        self, purpose: str, round: int, party: str, units: np.ndarray
    ) -> Callable[[int], np.ndarray]:
        """A function of the step's number. It returns a uniform number from [0, 1) for each of
        `units`, (k,) float64, which depends on (unit, step) only. With `system`, the numbers come
        from the operating system."""
        if self.system:
            generator = SystemGenerator()
            return lambda step: generator.random(len(units))
        keys = self.unit_keys(purpose, round, party, units)

        def coins(step: int) -> np.ndarray:
            numbers: np.ndarray = (branch(keys, step) >> np.uint64(11)) * 2.0**-53
            return numbers

        return coins

    def named_coins(self, purpose: str, names: Iterable[str]) -> np.ndarray:
        """A uniform number from [0, 1) for each name, (k,) float64. It depends on the seed, the
        purpose and this name only, so that no other name moves it."""
        head = f"fedpriv/{self.seed}/{SETUP}/coin of a name/{purpose}/".encode()
        found = [
            int.from_bytes(hashlib.blake2b(head + name.encode(), digest_size=8).digest(), "little")
            for name in names
        ]
        return np.asarray((np.array(found, dtype=np.uint64) >> np.uint64(11)) * 2.0**-53)

    def secret(
        self, purpose: str, round: int, party: str = ""
    ) -> np.random.Generator | SystemGenerator:
        """The generator for draws that privacy relies on: noise, the sample of users."""
        return SystemGenerator() if self.system else self.generator(purpose, round, party)


class _Key(ISeedSequence):
    """A key of 16 bytes in the form of a numpy seed. With it, numpy does not first draw a seed from
    the operating system."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return np.frombuffer(self.key, dtype="<u8")


def mix64(z: np.ndarray) -> np.ndarray:
    """A bijection of each uint64 of `z`: the finaliser of SplitMix64 (Steele, Lea, Flood: Fast
    splittable pseudorandom number generators, OOPSLA 2014; Stafford's variant 13)."""
    mixed: np.ndarray = z ^ z >> np.uint64(30)
    mixed *= np.uint64(FACTORS[0])
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(FACTORS[1])
    mixed ^= mixed >> np.uint64(31)
    return mixed


def branch(keys: np.ndarray, counters: np.ndarray | int) -> np.ndarray:
    """uint64 numbers below keys: one for each pair of `keys` (uint64) and `counters` (integers from
    0 on), broadcast against each other. Each number can be used as a key."""
    steps = np.atleast_1d(np.asarray(counters, dtype=np.uint64)) + np.uint64(1)
    return mix64(keys + np.uint64(GAMMA) * steps)


class SystemGenerator:
    """Uniform numbers from the operating system's generator. The methods have numpy's names;
    `integers` are exact.

    For many bytes at once, it uses the key stream of AES-256 in counter mode, with a new key from
    the operating system. There is no Gaussian: in floating point it has too few values to hide
    anything (see `fedpriv.mechanisms.grid_noise`).
    """

    def bytes(self, length: int) -> bytes:
        """`length` random bytes."""
        if length <= DIRECT_BYTES:
            return os.urandom(length)
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # A new key in every call: none has to stay secret, and a forked process repeats nothing.
        stream = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()
        return stream.update(bytes(length))

    def random(self, size: int) -> np.ndarray:
        """(size,) float64, uniform on the open interval (0, 1)."""
        bits = np.frombuffer(self.bytes(8 * size), dtype=np.uint64) >> np.uint64(12)
        return (bits.astype(np.float64) + 0.5) * 2.0**-52

    def integers(
        self,
        low: int,
        high: int | np.ndarray,
        size: int,
        dtype: type[np.int64] | type[np.uint64] = np.int64,
    ) -> np.ndarray:
        """(size,) integers, uniform from low to high - 1. `high` is a number or (size,). Raises
        ValueError unless every `high` is above `low`."""
        if not np.all(np.asarray(high) > low):
            raise ValueError(f"high={high}: must be above low={low}")
        # Modulo 2**64, high - 1 - low is right even if it is too large for int64.
        widest = np.asarray(high - 1).astype(np.uint64) - np.uint64(low % 2**64)
        widest, mask = (np.broadcast_to(bound, size) for bound in (widest, _all_ones(widest)))
        drawn = self._words(size, mask)
        rejected = np.flatnonzero(drawn > widest)
        while len(rejected):
            drawn[rejected] = self._words(len(rejected), mask[rejected])
            rejected = rejected[drawn[rejected] > widest[rejected]]
        return (drawn + np.uint64(low % 2**64)).astype(dtype)

    def _words(self, size: int, mask: np.ndarray) -> np.ndarray:
        """(size,) uint64: random bits where the mask has ones. It draws only as many bytes as the
        largest mask needs."""
        width = next(width for width in (1, 2, 4, 8) if int(mask.max(initial=0)) < 2 ** (8 * width))
        return np.asarray(np.frombuffer(self.bytes(width * size), dtype=f"u{width}") & mask)


def _all_ones(numbers: np.ndarray) -> np.ndarray:
    """For each uint64, the smallest number of the form 2**k - 1 that is not below it."""
    for shift in (1, 2, 4, 8, 16, 32):
        numbers = numbers | numbers >> np.uint64(shift)
    return numbers
