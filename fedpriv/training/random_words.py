"""Random words on the training device. Each is a function of a key and of counters, so there is no
generator and no order of draws.

They have the bits of `streams.mix64` and `streams.branch` in numpy, on processors and accelerators.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache, lru_cache

import numpy as np
import torch
from torch import Tensor

from fedpriv.util.streams import FACTORS, GAMMA, branch, mix64


def as_tensor(numbers: np.ndarray, device: torch.device) -> Tensor:
    """uint64 `numbers` as the int64 tensor of the same bits."""
    return torch.from_numpy(np.ascontiguousarray(numbers).view(np.int64)).to(device)


def mix64_(z: Tensor) -> Tensor:
    """`streams.mix64` on an int64 tensor, in place. Masks turn torch's arithmetic shifts into
    logical ones."""
    shifted = torch.empty_like(z)
    for shift, factor in zip((30, 27, 31), (*FACTORS, 1)):
        torch.bitwise_right_shift(z, shift, out=shifted)
        z.bitwise_xor_(shifted.bitwise_and_(2 ** (64 - shift) - 1))
        if factor != 1:
            z.mul_(factor - 2**64)
    return z


@lru_cache(4096)
def name_of(path: tuple[int, ...]) -> np.ndarray:
    """(1,) uint64: a digest of `path`."""
    return np.frombuffer(hashlib.blake2b(repr(path).encode(), digest_size=8).digest(), dtype="<u8")


def row_counters(paths: Sequence[tuple[int, ...]], first: int, rows: int) -> np.ndarray:
    """(k, rows) uint64: names of the rows `first`, `first` + 1, ... under each of `paths`."""
    names = np.concatenate([name_of(path) for path in paths])[:, None]
    return branch(names, np.arange(first, first + rows, dtype=np.uint64))


def random_words(keys: np.ndarray, rows: np.ndarray, features: int, device: torch.device) -> Tensor:
    """Random words (k, b, features) int32 on `device`. A word depends only on its key, its row's
    name and its feature's place.

    keys: (k,) uint64.
    rows: names of rows, (1, b) uint64 for all keys, or (k, b).
    """
    row_keys = mix64(keys[:, None] + rows)[..., None]
    columns = _columns((features + 1) // 2)
    if device.type == "cpu":  # numpy takes half of torch's time there
        return torch.from_numpy(mix64(row_keys + columns).view(np.int32))[..., :features]
    return words_by_torch(row_keys, columns, device)[..., :features]


def words_by_torch(row_keys: np.ndarray, columns: np.ndarray, device: torch.device) -> Tensor:
    """(k, b, 2 c) int32: the words of `row_keys` (k, b, 1) uint64 in `columns` (c,) uint64, mixed
    on `device`."""
    return mix64_(as_tensor(row_keys, device) + as_tensor(columns, device)).view(torch.int32)


@cache
def _columns(pairs: int) -> np.ndarray:
    """A number for each pair of features, (pairs,) uint64: SplitMix64's steps."""
    steps: np.ndarray = np.uint64(GAMMA) * np.arange(1, pairs + 1, dtype=np.uint64)
    return steps


def threshold(p: float) -> int:
    """The number t with P(word > t) = 1 - p for a uniform int32 word, 0 < p <= 1."""
    return round(p * 2**32) - 2**31 - 1


def epochs_a_word(layers: int) -> int:
    """How many epochs share the words of layers of probability 1/2. The 32 bits of a word are
    independent coins, and every layer takes one bit in every epoch."""
    return max(1, 32 // max(1, layers))


def shared_words(group: int, place: int, word: int) -> tuple[int, ...]:
    """The path of the words that layers of probability 1/2 share, one bit each."""
    return 0, group, place, word


def own_words(epoch: int, place: int, ordinal: int) -> tuple[int, ...]:
    """The path of the words that only the `ordinal`-th dropout layer uses."""
    return 1, epoch, place, ordinal
