"""Fully connected networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.models import Model, linear_size

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Mlp(Model):
    """Hidden blocks of Linear, ReLU, optional GroupNorm with one group, and Dropout, then a Linear
    layer to raw outputs.

    hidden: widths of the hidden blocks.
    norm: whether each block has GroupNorm, which normalises every record separately. BatchNorm is
        not available: it would leak one user's records into another user's update.
    dropout: probability of dropping a unit, in every hidden block but the first.

    With `hidden=[30, 30, 30, 30, 30], norm=True, dropout=0.5` and 30 features it is the creditcard
    network of Kato et al., Uldp-FL (PVLDB 2024), with 5012 parameters.
    """

    hidden: list[int]
    norm: bool
    dropout: float

    def __post_init__(self) -> None:
        positive = all(width >= 1 for width in self.hidden)
        require(positive, "model.hidden", self.hidden, "a list of positive widths")
        require(
            0 <= self.dropout < 1, "model.dropout", self.dropout, "a probability from 0 to below 1"
        )

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = [nn.Flatten()] if len(shape) > 1 else []
        width = math.prod(shape)
        for block, hidden in enumerate(self.hidden):
            layers += [nn.Linear(width, hidden), nn.ReLU()]
            if self.norm:
                layers.append(nn.GroupNorm(1, hidden))
            if self.dropout and block > 0:
                layers.append(nn.Dropout(self.dropout))
            width = hidden
        return nn.Sequential(*layers, nn.Linear(width, outputs))

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        norms = 2 * sum(self.hidden) if self.norm else 0
        return linear_size(math.prod(shape), *self.hidden, outputs) + norms
