"""The general road: torch.func.vmap over whole networks, for any module whose forward pass it can batch."""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from fedpriv.tasks import Task
from fedpriv.training.road import Road, budget
from fedpriv.training.schedule import Batch, Limits
from fedpriv.training.size import Size, in_mode
from fedpriv.training.vectors import unflatten

STEP_TIME = 2e5
"""Nanoseconds that one layer's kernels and transforms take in a step whatever their size; measured on one core."""
COPIES = 5
"""How many times the activations of a row autograd holds at its peak; measured."""


class Vmapped(Road):
    """Trains the users of a block in lockstep by transforming one user's gradient into that of all."""

    def __init__(self, module: nn.Module, theta: Tensor, size: Size, task: Task) -> None:
        self.module, self.theta = module, theta
        self.limits = Limits(
            step_cost=STEP_TIME * size.layers / size.row_time,
            user_bytes=16 * size.parameters,
            row_bytes=4 * COPIES * size.activations,
            budget=budget(theta),
        )

        def loss(vector: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return task.loss(functional_call(module, unflatten(module, vector), (x,)), y, weight)

        self.gradients = vmap(grad(loss), randomness="different")

    def begin(self, users: int) -> None:
        self.vectors = self.theta.expand(users, -1).clone()

    def step(self, batch: Batch, lr: float) -> None:
        active = self.vectors[: len(batch.x)]
        with in_mode(self.module, train=True):
            active.sub_(self.gradients(active, batch.x, batch.y, batch.weight), alpha=lr)

    def deltas(self) -> Tensor:
        return self.vectors.sub_(self.theta)
