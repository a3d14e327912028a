"""Memory that a stacked network reuses from step to step, and its random masks."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class BufferPool:
    """Named buffers that only grow. Allocating afresh in every step would cost more than the arithmetic."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._flat: dict[object, Tensor] = {}
        self._side = 0

    def take(self, key: object, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised contiguous tensor; taking a key again reuses its memory."""
        n, flat = math.prod(shape), self._flat.get(key)
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
        """A buffer for the gradient of x: one of two in turn, since the gradient of one layer comes from the next's."""
        self._side = 1 - self._side
        return self.like(("gradient", self._side), x)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(flat.nbytes for flat in self._flat.values())


class Masks:
    """Bernoulli masks as random int32 words, from one generator on the training device."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self._pool = torch.empty(0, dtype=torch.int64, device=generator.device)
        self._shifts = list(torch.arange(32, dtype=torch.int32, device=generator.device))
        self._views: dict[torch.Size, Tensor] = {}
        self._used = 32

    def reseed(self, seed: int) -> None:
        """Start over, so that the same calls of `draw` give the same masks."""
        self.generator.manual_seed(seed)
        self._used = 32

    def draw(self, words: Tensor, p: float) -> int:
        """Fill int32 `words` so that each is above the returned threshold with probability 1 - p, 0 < p <= 1."""
        pairs = (words.numel() + 1) // 2
        if len(self._pool) < pairs:
            self._pool, self._views, self._used = self._pool.new_empty(pairs), {}, 32
        if words.shape not in self._views:
            self._views[words.shape] = self._pool.view(torch.int32)[: words.numel()].view(words.shape)
        pool = self._views[words.shape]
        if p != 0.5:
            self._pool[:pairs].random_(-(2**63), None, generator=self.generator)
            self._used = 32
            words.copy_(pool)
            return round(p * 2**32) - 2**31 - 1
        # The 32 bits of a random word are independent coins: shift a fresh one into the sign each time.
        if self._used == 32:
            self._pool.random_(-(2**63), None, generator=self.generator)
            self._used = 0
        torch.bitwise_left_shift(pool, self._shifts[self._used], out=words)
        self._used += 1
        return -1
