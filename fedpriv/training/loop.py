"""The plain road: one user after another by autograd, for networks so large that a single user fills the machine."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedpriv.tasks import Task
from fedpriv.training.road import Road
from fedpriv.training.schedule import Batch, Limits
from fedpriv.training.vectors import flatten, load


class Loop(Road):
    """Trains blocks of a single user."""

    limits = Limits(step_cost=0.0, user_bytes=1, row_bytes=0, budget=1)

    def __init__(self, module: nn.Module, theta: Tensor, task: Task) -> None:
        self.module, self.theta, self.task = copy.deepcopy(module).train(), theta, task
        self.parameters = list(self.module.parameters())

    def begin(self, users: int) -> None:
        assert users == 1
        load(self.module, self.theta)

    def step(self, batch: Batch, lr: float) -> None:
        with torch.enable_grad():
            loss = self.task.loss(self.module(batch.x[0]), batch.y[0], batch.weight[0])
            gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters, gradients):
                if gradient is not None:
                    parameter.sub_(gradient, alpha=lr)

    def deltas(self) -> Tensor:
        return (flatten(self.module) - self.theta).unsqueeze(0)
