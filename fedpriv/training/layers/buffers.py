"""Memory that the steps of a batched network share, and its random masks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedpriv.training.random_words import random_words, row_counters, threshold


class BufferPool:
    """Named buffers that only grow. Allocating memory in every step would cost more than the
    arithmetic."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flat: dict[object, Tensor] = {}
        self._side = 0

    def take(
        self, key: object, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """An uninitialised contiguous tensor; taking a key again reuses its memory."""
        n = math.prod(shape)
        flat = self._flat.get(key)
        if flat is None or len(flat) < n:
            flat = self._flat[key] = torch.empty(n, dtype=dtype, device=self.device)
        return flat[:n].view(shape)

    def like(self, key: object, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """As `take`, with x's shape and its order of dimensions in memory."""
        strides = x.stride()
        order = sorted(range(x.dim()), key=lambda dim: (-strides[dim], dim))
        back = sorted(range(x.dim()), key=order.__getitem__)
        return self.take(key, tuple(x.shape[dim] for dim in order), dtype).permute(back)

    def gradient_like(self, x: Tensor) -> Tensor:
        """A buffer for the gradient of x. Two buffers take turns: the gradient of one layer is
        computed from that of the next."""
        self._side = 1 - self._side
        return self.like(("gradient", self._side), x)


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


class Masks:
    """The dropout masks of the users in a stack, as int32 words.

    A unit's word depends only on its user's key, the epoch, the batch's place in the epoch, the
    layer, the row within the user's batch, and the place within the layer's output. It does not
    depend on other users, or on the padding of a step.

    keys: (k,) uint64, one a seat.
    layers: indices of the dropout layers.
    budget: bytes of words in the cache.
    device: of the masks.
    """

    def __init__(
        self, keys: np.ndarray, *, layers: Sequence[int], budget: int, device: torch.device
    ) -> None:
        self._keys = keys.copy()
        self._budget = budget
        self._device = device
        self._ordinals = {index: ordinal for ordinal, index in enumerate(layers)}
        self._epochs_a_word = epochs_a_word(len(layers))
        self._shifts = list(torch.arange(32, dtype=torch.int32, device=device))
        self._cached: dict[tuple[object, ...], Tensor] = {}
        self._cached_bytes = self._row = 0
        self._steps = [(0, 0)]

    def rekey(self, seats: np.ndarray, keys: np.ndarray) -> None:
        """Others, with `keys` (m,), sit in `seats` (m,) from now on."""
        self._keys[seats] = keys
        self._forget()

    def at(self, epochs: np.ndarray, places: np.ndarray, row: int = 0) -> None:
        """Move to the batches at `places` (k,) in `epochs` (k,); the first row computed next is
        `row`."""
        steps = list(zip(epochs.tolist(), places.tolist()))
        if steps.count(steps[0]) == len(steps):
            steps = steps[:1]
        self._row = row
        if steps == self._steps:
            return
        # Users at different steps would find few of their words again.
        alone = len(steps) == len(self._steps) == 1
        if not alone or self._group(*steps[0]) != self._group(*self._steps[0]):
            self._forget()
        self._steps = steps

    def _group(self, epoch: int, _place: int) -> int:
        return epoch // self._epochs_a_word

    def _forget(self) -> None:
        self._cached = {}
        self._cached_bytes = 0

    def draw(self, layer: int, words: Tensor, p: float, rows: int) -> int:
        """Fill int32 `words` so that each is above the returned threshold with probability 1 - p,
        0 < p <= 1. Dimension 0 of `words` has the seats, dimension `rows` their rows."""
        ordinal = self._ordinals[layer]
        if p != 0.5:
            paths = [own_words(epoch, place, ordinal) for epoch, place in self._steps]
            words.copy_(self._words(paths, words.shape, rows))
            return threshold(p)
        paths = []
        bits = []
        for epoch, place in self._steps:
            group, own = divmod(epoch, self._epochs_a_word)
            word, bit = divmod(own * len(self._ordinals) + ordinal, 32)
            paths.append(shared_words(group, place, word))
            bits.append(bit)
        key = (*paths, self._row, words.shape, rows)
        source = self._cached.get(key)
        if source is None:
            source = self._words(paths, words.shape, rows)
            if self._cached_bytes + words.nbytes <= self._budget:
                self._cached[key] = source
                self._cached_bytes += words.nbytes
        shift = self._shifts[bits[0]]
        if len(bits) > 1:
            own_shifts = torch.tensor(bits[: len(words)], dtype=torch.int32, device=self._device)
            shift = own_shifts.view(-1, *[1] * (words.dim() - 1))
        torch.bitwise_left_shift(source, shift, out=words)
        return -1

    def _words(self, paths: Sequence[tuple[int, ...]], shape: torch.Size, rows: int) -> Tensor:
        """paths: of every seat, or one for all."""
        users = shape[0]
        b = shape[rows]
        others = [size for dim, size in enumerate(shape) if dim not in (0, rows)]
        names = row_counters(paths[:users], self._row, b)
        words = random_words(self._keys[:users], names, math.prod(others), self._device)
        return words.view(users, b, *others).movedim(1, rows)
