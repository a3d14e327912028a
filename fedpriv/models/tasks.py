"""Tasks: a loss that trains many models at once, and the metrics of one model.

Losses accept any leading dimensions, so one implementation serves a plain loop, `torch.func.vmap`
and batched models.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.models import Model
from fedpriv.models.scores import RANKED, class_scores, predicted, probabilities, ranked
from fedpriv.util.installed import installed

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Task(ABC):
    """A learning problem. Figures and summaries show the first entry of `metrics`.

    threshold: of two classes the second is predicted where its probability is above.
    """

    threshold: float = field(default=0.5, kw_only=True)

    @property
    def meaning(self) -> str:
        """What outputs mean to somebody who uses the model: logits of `classes`, one `logit`, a
        `number`, a `log_hazard`, or `raw`."""
        return "raw"

    @property
    @abstractmethod
    def metric(self) -> str:
        """Name of the main metric; higher is better."""

    @abstractmethod
    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Weighted loss of each batch.

        outputs: (..., b, c) raw model outputs.
        y: (..., b) or (..., b, 2) labels.
        weight: (..., b) non-negative. Weights 1/b give the mean over b rows. A padding row has
            weight 0 and must not influence the others.

        Returns (...).
        """

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        """Gradient of `loss` with respect to the outputs, (..., b, c). Subclasses with a closed
        form save an autograd pass per step."""
        import torch

        with torch.inference_mode(False), torch.enable_grad():
            outputs = outputs.clone().requires_grad_()
            return torch.autograd.grad(self.loss(outputs, y, weight).sum(), outputs)[0]

    def curvature(self, outputs: int) -> float | None:
        """Largest second derivative of one record's loss in its outputs, along any direction, if
        the loss is proven to be convex and to stay convex when its gradient is clipped; else None.

        A loss of one margin stays convex: clipping limits its monotone derivative, and the result
        is a Huber-like loss.
        """
        return None

    @abstractmethod
    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """Metrics of outputs (n, c) against labels (n, ...); NaN if a metric is undefined on these
        records."""

    def final_metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        """`metrics`, and others that are computed once, at the end of a run."""
        return self.metrics(outputs, y)


CLASS_METRICS = (*RANKED, "balanced_accuracy", "accuracy")


@dataclass(frozen=True)
class Classification(Task):
    """Cross-entropy over c classes.

    main: the main metric, one of `CLASS_METRICS`.
    factors: public weights of the classes' records, in the order of the classes; empty: 1 each.

    Balanced accuracy is the mean recall over the classes present. With two classes it equals the
    ROC-AUC of hard labels, (TPR + TNR) / 2, which the Uldp-FL experiments call accuracy on
    creditcard.
    """

    main: str = "accuracy"
    factors: tuple[float, ...] = ()

    meaning = "classes"

    @property
    def metric(self) -> str:
        return self.main

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        log_p = outputs.log_softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return -(log_p * self._weight(y, weight)).sum(-1)

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        index = y.unsqueeze(-1)
        p = outputs.softmax(-1)
        return p.scatter_add_(-1, index, p.new_full((), -1.0).expand(index.shape)).mul_(
            self._weight(y, weight).unsqueeze(-1)
        )

    def _weight(self, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The weights (..., b) of records times those of their classes."""
        return weight * weight.new_tensor(self.factors)[y] if self.factors else weight

    def curvature(self, outputs: int) -> float | None:
        # Two classes: the loss depends on the margin z_1 - z_0, with p (1 - p) <= 1/4 along it, and
        # |(1, -1)|^2 = 2.
        return 0.5 * max(self.factors, default=1.0) if outputs == 2 else None

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        hit = predicted(outputs, self.threshold) == y
        records = np.bincount(y)
        present = records > 0
        accuracy = hit.mean()
        recalls = np.bincount(y, weights=hit, minlength=len(records))[present] / records[present]
        values = {
            "accuracy": float(accuracy),
            "balanced_accuracy": float(recalls.mean()),
            "error": float(1 - accuracy),
        }
        if self.main in RANKED:
            return {self.main: ranked(self.main, probabilities(outputs), y), **values}
        return {self.main: values.pop(self.main), **values}

    def final_metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        known = self.metrics(outputs, y)
        return known | class_scores(probabilities(outputs), y, predicted(outputs, self.threshold))


@dataclass(frozen=True)
class BinaryClassification(Task):
    """Binary cross-entropy on one logit; labels are float 0 or 1. The loss applies the sigmoid, so
    it is the same function as BCE on a sigmoid output, but does not saturate."""

    meaning = "logit"
    metric = "accuracy"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import softplus

        logits = outputs.squeeze(-1)
        return ((softplus(logits) - y * logits) * weight).sum(-1)

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        return (outputs.sigmoid() - y.unsqueeze(-1)).mul_(weight.unsqueeze(-1))

    def curvature(self, outputs: int) -> float | None:
        return 0.25

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        accuracy = float((predicted(outputs, self.threshold) == (y > 0.5)).mean())
        return {"accuracy": accuracy, "error": 1 - accuracy}

    def final_metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        p, classes = probabilities(outputs), (y > 0.5).astype(np.int64)
        known = self.metrics(outputs, y)
        return known | class_scores(p, classes, predicted(outputs, self.threshold))


@dataclass(frozen=True)
class CoxRegression(Task):
    """Cox's partial likelihood within a batch, and Harrell's C-index with the score as risk.

    Labels are (event, time). Sorted by time descending, record i has loss `event_i *
    (logsumexp_{j<=i} s_j - s_i)`; a batch without an event has loss 0.
    """

    meaning = "log_hazard"
    metric = "c_index"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        import torch

        event = y[..., 0]
        time = y[..., 1]
        real = weight > 0
        # Padding sorts last and never enters a risk set.
        order = torch.where(real, -time, torch.inf).argsort(stable=True, dim=-1)
        score = outputs.squeeze(-1).gather(-1, order)
        real = real.gather(-1, order)
        risk = torch.where(real, score, torch.finfo(score.dtype).min).logcumsumexp(-1)
        hazard = (risk - score) * (event * weight).gather(-1, order)
        return torch.where(real, hazard, 0.0).sum(-1)

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        from lifelines.utils import concordance_index

        try:
            # lifelines orders by predicted survival time, the opposite of risk.
            return {"c_index": float(concordance_index(y[:, 1], -outputs[:, 0], y[:, 0]))}
        except ZeroDivisionError:  # no comparable pair in these records
            return {"c_index": float("nan")}


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
