"""How far a record moves what an observer sees of a round of noisy local steps, and whose noise
hides that."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.models.convexity import ConvexLoss


@dataclass(frozen=True)
class Exposure:
    """A Gaussian release: `moved` by a record, in units of clip, under the noise of `hidden` silos'
    single steps.

    why: what that rests on.
    """

    moved: float
    hidden: float
    why: tuple[str, ...]

    @property
    def gap(self) -> float:
        """Distance of the means in standard deviations, for noise of standard deviation clip."""
        return self.moved / math.sqrt(self.hidden)


def touches(records: int, batch_size: int, steps: int) -> int:
    """In how many of `steps` one record can be: once in each pass begun, and a pass has whole
    batches only."""
    return math.ceil(steps / (records // batch_size))


def drift_factor(
    steps: int, lr: float, *, loss: ConvexLoss | None, feature_norm: float | None
) -> tuple[float, str]:
    """By which factor the steps after the first can spread two models apart, inf for unknown; and
    why.

    A gradient step on a convex beta-smooth loss moves two models apart by max(1, lr * beta - 1) at
    most.
    """
    if steps == 1:
        return 1.0, "one local step"
    if loss is None:
        return math.inf, "the clipped loss is not known to be convex"
    if feature_norm is None:
        return math.inf, "the features' norm has no public bound (algo.feature_norm)"
    smoothness = loss.smoothness(feature_norm)
    growth = (steps - 1) * math.log(max(1.0, lr * smoothness - 1))
    factor = math.exp(growth) if growth < 700 else math.inf
    return (
        factor,
        f"convex {smoothness:g}-smooth clipped losses spread models at most {factor:g}-fold",
    )
