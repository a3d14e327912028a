"""The regularised empirical risk of a federation, and its minimum.

Not private: both look at all records.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task


@dataclass(frozen=True)
class Optimum:
    """The minimum of J.

    theta: where J is smallest, (d,).
    value: J there.
    heterogeneity: Gamma, the value minus the mean of the minima of all J_j; zero if one model is
        best for every silo.
    """

    theta: np.ndarray
    value: float
    heterogeneity: float


@dataclass(frozen=True)
class Objective:
    """J(theta) = 1/m sum_j J_j(theta) over m silos.

    J_j is the mean loss of silo j's records plus strong_convexity/2 |theta|^2, in float64 and
    without clipping.

    silos: each silo's records.
    model: the network.
    task: has the loss.
    strong_convexity: lambda.
    """

    silos: list[SiloData]
    model: nn.Module
    task: Task
    strong_convexity: float

    def value(self, theta: np.ndarray) -> float:
        """J at theta (d,)."""
        return self.value_and_gradient(theta, self.silos)[0]

    def optimum(self, start: np.ndarray) -> Optimum:
        """The minimum of J and its heterogeneity, by L-BFGS from `start` (d,)."""
        theta, value = self._minimum(start, self.silos)
        alone = [self._minimum(theta, [silo])[1] for silo in self.silos]
        return Optimum(theta, value, value - float(np.mean(alone)))

    def _minimum(self, start: np.ndarray, silos: list[SiloData]) -> tuple[np.ndarray, float]:
        from scipy.optimize import minimize

        found = minimize(
            self.value_and_gradient,
            start,
            args=(silos,),
            method="L-BFGS-B",
            jac=True,
            options={"maxiter": 10_000, "maxfun": 20_000, "ftol": 1e-14, "gtol": 1e-9},
        )
        # With J lambda-strongly convex, J(theta) - J* <= |gradient|^2 / (2 lambda).
        gap = float(found.jac @ found.jac) / (2 * self.strong_convexity)
        if not gap < 1e-6:
            raise ArithmeticError(
                f"the minimum was not found: {found.message}, up to {gap:.2g} away"
            )
        return found.x, float(found.fun)

    def value_and_gradient(
        self, theta: np.ndarray, silos: list[SiloData]
    ) -> tuple[float, np.ndarray]:
        """The mean of J_j over these silos at theta (d,), and its gradient (d,)."""
        import torch
        from torch.func import functional_call

        from fedpriv.training.vectors import unflatten

        model = copy.deepcopy(self.model).double().eval()
        vector = (
            torch.from_numpy(np.asarray(theta, dtype=np.float64))
            .to(silos[0].x.device)
            .requires_grad_()
        )
        x, y = (torch.cat([getattr(silo, part) for silo in silos]) for part in ("x", "y"))
        sizes = torch.tensor([len(silo.x) for silo in silos], device=x.device)
        weight = (1.0 / sizes.double() / len(silos)).repeat_interleave(sizes)
        outputs = functional_call(model, unflatten(model, vector), (x.double(),))
        labels = y.double() if y.is_floating_point() else y
        risk = self.task.loss(outputs, labels, weight) + self.strong_convexity / 2 * vector @ vector
        (gradient,) = torch.autograd.grad(risk, vector)
        return float(risk.detach()), gradient.cpu().numpy()
