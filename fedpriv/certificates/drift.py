"""The number of local steps that use a record, and the factor by which later steps can amplify its
effect."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.models.tasks import ConvexLoss


@dataclass(frozen=True)
class Drift:
    """A bound on how far local steps spread two models apart.

    factor: largest growth of their distance in the steps after the first; inf: unknown.
    reason: why the factor holds.
    """

    factor: float
    reason: str


def touches(records: int, batch_size: int, steps: int) -> int:
    """The largest number of `steps` that use one record: one in each pass begun. A pass has whole
    batches only."""
    return math.ceil(steps / (records // batch_size))


def convex_drift(
    steps: int, lr: float, *, loss: ConvexLoss | None, feature_norm: float | None
) -> Drift:
    """The drift of `steps` gradient steps with learning rate `lr`.

    One step on a convex beta-smooth loss increases the distance of two models by a factor of at
    most max(1, lr * beta - 1).

    loss: proven convexity of the loss; None: nothing is proven.
    feature_norm: public bound on the L2 norm of the features; None: no bound.
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
