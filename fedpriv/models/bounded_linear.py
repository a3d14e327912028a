"""Logistic regression on records of bounded length, which makes its loss smooth by construction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.models.linear import Linear

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class BoundedLinear(Linear):
    """Linear scores of the record, scaled down to L2 norm `input_norm` if it is longer.

    The scaling looks at one record at a time, whatever the data are, so the smoothness of the loss
    and the size of its gradients are public numbers: the usual setting of private empirical risk
    minimisation.
    """

    input_norm: float = 1.0

    def __post_init__(self) -> None:
        require(
            0 < self.input_norm < math.inf,
            "model.input_norm",
            self.input_norm,
            "a positive finite bound",
        )

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
        from torch import nn

        from fedpriv.models.l2_projection import L2Projection

        plain = super().build(shape, outputs)
        return nn.Sequential(*plain[:-1], L2Projection(self.input_norm), plain[-1])

    def score_norm(self, feature_norm: float) -> float:
        return super().score_norm(min(feature_norm, self.input_norm))
