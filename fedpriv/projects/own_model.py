"""Your own model: one hidden layer of tanh units."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class OwnModel(Model):
    """width: units of the hidden layer."""

    width: int = 8

    def __post_init__(self) -> None:
        require(self.width >= 1, "model.width", self.width, "a positive number")

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Torch is imported here, since other commands start faster without it."""
        from torch import nn

        features = math.prod(shape)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(features, self.width),
            nn.Tanh(),
            nn.Linear(self.width, outputs),
        )
