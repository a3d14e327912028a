"""All users of a block at once by torch.func.vmap, for any network that vmap can batch and that
draws no random numbers: vmap would draw them by a user's place in the block."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from fedpriv.training.modes import in_mode
from fedpriv.training.schedule import BatchStep, Limits
from fedpriv.training.trainers.base import LocalProblem, TrainerState, UserTrainer, memory_budget
from fedpriv.training.vectors import ParameterLayout, call, unflatten

STEP_TIME = 2e5
"""Nanoseconds of one layer's kernels and transforms in a step, whatever their size; measured on one
core."""
COPIES = 5
"""How many copies of a row's activations autograd holds at its peak; measured."""


class Vmapped(UserTrainer[TrainerState]):
    """Trains the users of a block in lockstep: vmap transforms the gradient of one user into that
    of all. The only stack is that of the flat vectors."""

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem, ParameterLayout([(problem.cost.parameters,)]))
        model = problem.model
        task = problem.task
        cost = problem.cost
        self.limits = Limits(
            step_cost=STEP_TIME * cost.layers / cost.row_time,
            user_bytes=4 * (4 + problem.extra_numbers) * cost.parameters,
            row_bytes=4 * COPIES * cost.activations,
            budget=memory_budget(problem.start.device),
        )

        def loss(vector: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return task.loss(call(model, unflatten(model, vector), x), y, weight)

        self.gradients = vmap(grad(loss), randomness="error")

    def init(self, keys: np.ndarray) -> TrainerState:
        parameters = self._stacks(len(keys))
        return TrainerState(parameters, self.problem.recipe.optimizer.init(parameters))

    def step(self, state: TrainerState, step: BatchStep) -> None:
        batch = step.batch
        active = state.parameters[0][: len(batch.x)]
        with in_mode(self.problem.model, train=True):
            self._descend(state, [self.gradients(active, batch.x, batch.y, batch.weight)])


def can_be_vmapped(problem: LocalProblem) -> bool:
    """Whether vmap can run the problem's model in training, tried on records of zeros."""
    model = problem.model
    vectors = problem.start.expand(2, -1)
    x = torch.zeros((2, 1, *problem.shape), dtype=problem.dtype, device=vectors.device)

    def outputs(vector: Tensor, x: Tensor) -> Tensor:
        return call(model, unflatten(model, vector), x)

    try:
        with torch.no_grad(), in_mode(model, train=True):
            vmap(outputs, randomness="error")(vectors, x)
    except RuntimeError:
        return False
    return True
