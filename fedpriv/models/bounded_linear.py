"""Logistic regression on records of bounded L2 norm, so that its loss is smooth by construction."""

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
    """Linear scores of the record, which is scaled down if its L2 norm exceeds `input_norm`.

    The scaling depends on one record only. The smoothness of the loss and the size of its gradients
    are therefore public numbers, as usual in private empirical risk minimisation.

    input_norm: largest L2 norm of a record.
    """

    input_norm: float = 1.0

    def __post_init__(self) -> None:
        fits = 0 < self.input_norm < math.inf
        require(fits, "model.input_norm", self.input_norm, "a positive finite bound")

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Sequential:
        from torch import nn

        from fedpriv.models.l2_projection import L2Projection

        plain = super().build(shape, outputs)
        return nn.Sequential(*plain[:-1], L2Projection(self.input_norm), plain[-1])

    def score_norm(self, feature_norm: float) -> float:
        return super().score_norm(min(feature_norm, self.input_norm))
