"""Losses that are convex in the model's parameters, and how smooth they are."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.models import Model
from fedpriv.models.tasks import Task


@dataclass(frozen=True)
class ConvexLoss:
    """One record's loss on a model whose outputs are linear in the parameters; convex, clipped or
    not.

    curvature: largest second derivative of the loss in the outputs.
    """

    curvature: float
    model: Model

    def smoothness(self, feature_norm: float) -> float:
        """Largest second derivative in the parameters, along any direction, of records of norm
        `feature_norm` or less.

        The Hessian is the one in the outputs times x x^T, with x the features and a constant 1 if
        there is a bias.
        """
        norm = self.model.score_norm(feature_norm)
        assert norm is not None  # `convex_loss` takes no other model
        return self.curvature * norm**2


def convex_loss(model: Model, task: Task, outputs: int) -> ConvexLoss | None:
    """What is known to be convex about training `model` on `task`; None when that is nothing."""
    curvature = task.curvature(outputs)
    return (
        None if curvature is None or model.score_norm(1.0) is None else ConvexLoss(curvature, model)
    )
