"""Convolutional layers of many users at once, as matrix products over unfolded patches.

Images between these layers are logically (a, p, b, h, w, c): a users, b rows, c channels, and p the positions inside a
window of the max-pooling that follows (1 without one), so that pooling takes a maximum over whole contiguous tensors.
Their strides differ: whatever is fastest to produce. With one input channel, or three, a matrix product runs best with
images in the columns; with many channels a patch is a run of kernel width times channels, copied as one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedpriv.training.dense import Layer, mask_where

TINY = -1e-45
"""Just below zero: `mask_where(g, v, TINY)` keeps g where v >= 0."""


def windows(image: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
    """All windows of (a, b, H, W, c) as a view (a, b, oh, ow, c, kh, kw)."""
    return image.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])


def split(x: Tensor, dim: int, pool: tuple[int, int]) -> Tensor:
    """Split dims `dim` (oh) and `dim + 1` (ow) of a view by pooling windows: (..., oh/ph, ph, ow/pw, pw, ...)."""
    return x.unflatten(dim + 1, (-1, pool[1])).unflatten(dim, (-1, pool[0]))


class Conv2d(Layer):
    """What both variants share. `pool`, (1, 1) or the window of the max-pooling downstream, is set on the module."""

    def bind(self) -> Tensor:
        module = self.module
        self.pool = self.context.pool
        self.bias = self.parameters[1] if module.bias is not None else None
        (a, b, *size), kernel = self._image().shape[:4], module.kernel_size
        self.out = tuple((n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, module.padding, kernel, module.stride))
        return self._bind(a, b)
