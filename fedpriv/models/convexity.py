"""Losses that are convex in the model's parameters, and how smooth they are."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.models import Model
from fedpriv.models.tasks import Task
from fedpriv.util.installed import installed


@dataclass(frozen=True)
class ConvexLoss:
    """One record's loss on a model that is linear in its parameters. It is convex, and stays convex
    if its gradient is clipped.

    curvature: largest second derivative of the loss in the outputs.
    model: the linear model.
    """

    curvature: float
    model: Model

    def smoothness(self, feature_norm: float) -> float:
        """Largest second derivative in the parameters, along any direction, for records of L2 norm
        `feature_norm` or less.

        The Hessian is that in the outputs times x x^T, where x holds the features and, with a bias,
        a constant 1.
        """
        norm = self.model.score_norm(feature_norm)
        assert norm is not None  # `convex_loss` takes no other model
        return self.curvature * norm**2


def convex_loss(model: Model, task: Task, outputs: int) -> ConvexLoss | None:
    """The loss of `model` on `task` if it is known to be convex, else None. It is known of the
    framework's own classes: those of others may inherit what no longer holds of them."""
    known = installed(model) and installed(task)
    curvature = task.curvature(outputs) if known else None
    if curvature is None or model.score_norm(1.0) is None:
        return None
    return ConvexLoss(curvature, model)
