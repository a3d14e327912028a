"""One linear layer: logistic regression and Cox regression, depending on the task."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Linear(Model):
    """Scores x W^T + b of the flattened record. Kato et al. (PVLDB 2024) use it for heart disease
    (14 parameters) and TCGA (40).

    bias: whether there is a constant b.
    zero: whether training starts at zero, which says the same of every record.
    """

    bias: bool = True
    zero: bool = False

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
        from torch import nn

        flatten = [nn.Flatten()] if len(shape) > 1 else []
        layer = nn.Linear(math.prod(shape), outputs, bias=self.bias)
        if self.zero:
            for parameter in layer.parameters():
                nn.init.zeros_(parameter)
        return nn.Sequential(*flatten, layer)

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        return (math.prod(shape) + self.bias) * outputs

    def score_norm(self, feature_norm: float) -> float:
        return math.hypot(feature_norm, self.bias)
