"""Dropout whose mask is an input of the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

DROPOUTS: dict[type[nn.Module], int] = {
    nn.Dropout: 0,
    nn.Dropout1d: 1,
    nn.Dropout2d: 2,
    nn.Dropout3d: 3,
}
"""Layers of dropout, and how many of the last dimensions share one coin."""


class MaskedDropout(nn.Module):
    """Multiplies its input by the buffer `mask`.

    p: probability of dropping a unit.
    whole: how many of the last dimensions share one coin.
    """

    mask: Tensor

    def __init__(self, p: float, whole: int) -> None:
        super().__init__()
        self.p = p
        self.whole = whole
        self.register_buffer("mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask
