"""How often a record meets local steps, and how far later steps spread what it has moved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.models.convexity import ConvexLoss


@dataclass(frozen=True)
class Drift:
    """factor: by which the steps after the first can spread two models apart at most; inf: unknown.
    reason: why.
    """

    factor: float
    reason: str


def touches(records: int, batch_size: int, steps: int) -> int:
    """In how many of `steps` one record can be: once in each pass begun, and a pass has whole
    batches only."""
    return math.ceil(steps / (records // batch_size))


def convex_drift(
    steps: int, lr: float, *, loss: ConvexLoss | None, feature_norm: float | None
) -> Drift:
    """That of `steps` steps of rate `lr`.

    A gradient step on a convex beta-smooth loss moves two models apart by max(1, lr * beta - 1) at
    most.
    """
    if steps == 1:
        return Drift(1.0, "one local step")
    if loss is None:
        return Drift(math.inf, "the clipped loss is not known to be convex")
    if feature_norm is None:
        return Drift(math.inf, "the features' norm has no public bound (algo.feature_norm)")
    smoothness = loss.smoothness(feature_norm)
    growth = (steps - 1) * math.log(max(1.0, lr * smoothness - 1))
    factor = math.exp(growth) if growth < 700 else math.inf
    return Drift(
        factor,
        f"convex {smoothness:g}-smooth clipped losses spread models at most {factor:g}-fold",
    )
