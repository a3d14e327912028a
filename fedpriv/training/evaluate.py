"""Loss and metrics of one model on records."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedpriv.tasks import Task
from fedpriv.training.modes import in_mode
from fedpriv.training.vectors import unflatten


def evaluate(
    model: nn.Module, theta: Tensor, *, x: Tensor, y: Tensor, task: Task, batch: int = 1024
) -> tuple[float, dict[str, float]]:
    """Mean loss over the records and the task's metrics, in evaluation mode; `model` is left as it was.

    theta: (d,). x: (n, ...) and y: (n, ...), n >= 1. batch: records in memory at once. The loss is computed from all
    outputs together, so losses that compare records (Cox) see all of them.
    """
    with torch.no_grad(), in_mode(model, train=False):
        parameters = unflatten(model, theta)
        outputs = torch.cat([functional_call(model, parameters, (rows,)) for rows in torch.split(x, batch)])
        weight = outputs.new_full((len(x),), 1 / len(x))
        loss = float(task.loss(outputs, y, weight))
    return loss, task.metrics(outputs.cpu().numpy(), y.cpu().numpy())


def objective(
    model: nn.Module, theta: Tensor, *, silos: list[tuple[Tensor, Tensor]], task: Task
) -> tuple[float, float]:
    """Mean over the silos of their mean losses, and the L2 norm of its gradient, in evaluation mode.

    theta: (d,). silos: x (n, ...) and y (n, ...) of each, n >= 1. `model` is left as it was.
    """
    loss, gradient = 0.0, torch.zeros_like(theta)
    with torch.enable_grad(), in_mode(model, train=False):
        for x, y in silos:
            vector = theta.clone().requires_grad_()
            weight = theta.new_full((len(x),), 1 / (len(x) * len(silos)))
            part = task.loss(functional_call(model, unflatten(model, vector), (x,)), y, weight)
            loss += float(part.detach())
            gradient += torch.autograd.grad(part, vector)[0]
    return loss, float(gradient.norm())
