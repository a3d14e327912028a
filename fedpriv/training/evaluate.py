"""Loss and metrics of one model on records."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedpriv.tasks import Task
from fedpriv.together import Work, done
from fedpriv.training.chain import Chain
from fedpriv.training.modes import in_mode
from fedpriv.training.vectors import unflatten


def evaluate(
    model: nn.Module, theta: Tensor, *, x: Tensor, y: Tensor, task: Task, batch: int = 1024
) -> tuple[float, dict[str, float]]:
    """Mean loss over the records and the task's metrics, in evaluation mode; `model` is left as it was.

    theta: (d,). x: (n, ...) and y: (n, ...), n >= 1. batch: records in memory at once. The loss is computed from all
    outputs together, so losses that compare records (Cox) see all of them.
    """
    return done(_Evaluated(model, theta, x, y, task, batch))


@dataclass(frozen=True, eq=False)
class _Evaluated(Work[tuple[float, dict[str, float]]]):
    """An evaluation that is asked for. Those of equal networks on the same records can be made together."""

    model: nn.Module
    theta: Tensor
    x: Tensor
    y: Tensor
    task: Task
    batch: int

    @property
    def kind(self) -> Hashable:
        chain = self._chain
        if chain is None or not chain.stackable or len(self.x) > self.batch:
            return None
        return chain.name, self.task, self.theta.dtype, *((t.data_ptr(), t.shape, t.dtype) for t in (self.x, self.y))

    @property
    def _chain(self) -> Chain | None:
        return Chain.of(self.model, tuple(self.x.shape[1:]))

    def alone(self) -> tuple[float, dict[str, float]]:
        return _alone(self.model, self.theta, x=self.x, y=self.y, task=self.task, batch=self.batch)

    @classmethod
    def together(cls, works: Sequence[_Evaluated]) -> list[tuple[float, dict[str, float]]]:
        first, chain = works[0], works[0]._chain
        assert chain is not None
        thetas = torch.stack([work.theta for work in works])
        x, y = (t.expand(len(works), *t.shape) for t in (first.x, first.y))
        with torch.no_grad():
            _, outputs = chain.forward(thetas, x, {})
            losses = first.task.loss(outputs, y, outputs.new_full(outputs.shape[:2], 1 / len(first.x)))
        labels = first.y.cpu().numpy()
        metrics = [first.task.metrics(own, labels) for own in outputs.cpu().numpy()]
        return list(zip(losses.tolist(), metrics))


def _alone(
    model: nn.Module, theta: Tensor, *, x: Tensor, y: Tensor, task: Task, batch: int
) -> tuple[float, dict[str, float]]:
    with torch.no_grad(), in_mode(model, train=False):
        parameters = unflatten(model, theta)
        outputs = torch.cat([functional_call(model, parameters, (rows,)) for rows in torch.split(x, batch)])
        weight = outputs.new_full((len(x),), 1 / len(x))
        loss = float(task.loss(outputs, y, weight))
    return loss, task.metrics(outputs.cpu().numpy(), y.cpu().numpy())


@dataclass(frozen=True)
class TrainingLoss:
    """The mean over silos of their mean losses F_i at a model, and its gradient (d,).

    heterogeneity: sqrt(mean over silos |grad F_i - grad F|^2), a lower bound of the upsilon that bounds it at every
    model (Lowy, Ghafelebashi, Razaviyayn, AISTATS 2023, Assumption 5).
    """

    loss: float
    gradient: Tensor
    heterogeneity: float


def training_loss(model: nn.Module, theta: Tensor, *, silos: list[tuple[Tensor, Tensor]], task: Task) -> TrainingLoss:
    """What the silos' training records say of a model, in evaluation mode.

    theta: (d,). silos: x (n, ...) and y (n, ...) of each, n >= 1. `model` is left as it was.
    """
    loss, squares, gradient = 0.0, 0.0, torch.zeros_like(theta, dtype=torch.float64)
    with torch.enable_grad(), in_mode(model, train=False):
        for x, y in silos:
            vector = theta.clone().requires_grad_()
            weight = theta.new_full((len(x),), 1 / len(x))
            part = task.loss(functional_call(model, unflatten(model, vector), (x,)), y, weight)
            own = torch.autograd.grad(part, vector)[0].double()
            loss += float(part.detach()) / len(silos)
            squares += float(own.square().sum()) / len(silos)
            gradient += own / len(silos)
    spread = max(squares - float(gradient.square().sum()), 0.0)
    return TrainingLoss(loss, gradient, math.sqrt(spread))
