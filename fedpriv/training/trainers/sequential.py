"""One user after another by autograd: for networks so large that a single user fills the machine,
and for those that no other trainer supports."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedpriv.training.modes import seeded_dropout
from fedpriv.training.schedule import BatchStep, Limits
from fedpriv.training.trainers.base import LocalProblem, TrainerState, UserTrainer
from fedpriv.training.vectors import ParameterLayout, load
from fedpriv.util.streams import branch


@dataclass
class SequentialState(TrainerState):
    """The state of one user's training.

    module: the user's network, with buffers (such as running statistics) of its own.
    leaves: its parameters, which share their memory with the stacks.
    keys: (1,) uint64, the user's.
    """

    module: nn.Module
    leaves: list[nn.Parameter]
    keys: np.ndarray


class Sequential(UserTrainer[SequentialState]):
    """Trains blocks of a single user."""

    limits = Limits(step_cost=0.0, user_bytes=1, row_bytes=0, budget=1)

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem, ParameterLayout([p.shape for p in problem.model.parameters()]))

    def init(self, keys: np.ndarray) -> SequentialState:
        assert len(keys) == 1
        module = copy.deepcopy(self.problem.model).train()
        load(module, self.problem.start)
        leaves = list(module.parameters())
        parameters = [leaf.detach().unsqueeze(0) for leaf in leaves]
        slots = self.problem.recipe.optimizer.init(parameters)
        return SequentialState(parameters, slots, module, leaves, keys)

    def step(self, state: SequentialState, step: BatchStep) -> None:
        batch = step.batch
        seed = int(branch(branch(state.keys, step.epoch), step.place)[0])
        with seeded_dropout(batch.x.device, seed >> 1), torch.enable_grad():
            loss = self.problem.task.loss(state.module(batch.x[0]), batch.y[0], batch.weight[0])
            gradients = torch.autograd.grad(loss, state.leaves, materialize_grads=True)
        with torch.no_grad():
            self._descend(state, [gradient.unsqueeze(0) for gradient in gradients])
