"""Tasks with a number as label: regression, and survival without a comparison of records.

Cox's partial likelihood compares a record with others, so that a user with one record has no loss.
`ExponentialSurvival` is a loss of one record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.models.tasks import CoxRegression, Task

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Regression(Task):
    """Half the squared error of one output. The main metric is R2, because higher is better.

    unit: size of 1 in the label's own unit, in which `rmse` and `mae` are reported.
    """

    unit: float = 1.0

    meaning = "number"
    metric = "r2"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return ((outputs.squeeze(-1) - y).square() * weight).sum(-1) / 2

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        return (outputs - y.unsqueeze(-1)) * weight.unsqueeze(-1)

    def curvature(self, outputs: int) -> float | None:
        return 1.0 if outputs == 1 else None

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        error = np.asarray(outputs[:, 0] - y, dtype=np.float64)
        spread = float(np.asarray(y, dtype=np.float64).var())
        mean = float(np.square(error).mean())
        return {
            "r2": 1 - mean / spread if spread > 0 else float("nan"),
            "rmse": self.unit * mean**0.5,
            "mae": self.unit * float(np.abs(error).mean()),
        }


STEEPEST = 8.0
"""Log-hazard from which on the likelihood continues as a straight line, so that a step too far does
not overflow. It stays convex."""


@dataclass(frozen=True)
class ExponentialSurvival(Task):
    """Proportional hazards with a constant baseline: the output is the logarithm of the hazard.

    Labels are (event, time), the time in units of the longest observation. The loss of a record is
    hazard * time - event * log(hazard), the negative log-likelihood of an exponential time. Main
    metric: Harrell's C-index with the output as risk.
    """

    meaning = "log_hazard"
    metric = "c_index"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        score = outputs.squeeze(-1)
        capped = score.clamp(max=STEEPEST)
        hazard = capped.exp() * (1 + score - capped)
        return ((hazard * y[..., 1] - score * y[..., 0]) * weight).sum(-1)

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        hazard = outputs.squeeze(-1).clamp(max=STEEPEST).exp()
        return ((hazard * y[..., 1] - y[..., 0]) * weight).unsqueeze(-1)

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        return CoxRegression().metrics(outputs, y)
