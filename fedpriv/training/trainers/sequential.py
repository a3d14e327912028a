"""One user after another by autograd: for networks so large that a single user fills the machine,
and for those that no other trainer supports."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.modes import kept_generators, seed_generators
from fedpriv.training.network_checks import refused
from fedpriv.training.own_code import own_code
from fedpriv.training.schedule import BatchStep, Limits
from fedpriv.training.trainers.base import (
    LocalProblem,
    Result,
    TrainerState,
    TrainingUsers,
    UserTrainer,
)
from fedpriv.training.untouched import Snapshot, may_remember
from fedpriv.training.vectors import ParameterLayout
from fedpriv.util.streams import branch


@dataclass
class SequentialState(TrainerState):
    """The state of one user's training.

    module: the network that computes its steps; its own if a network may remember what it has seen,
        such as running statistics.
    leaves: its parameters.
    keys: (1,) uint64, the user's.
    """

    module: nn.Module
    leaves: list[nn.Parameter]
    keys: np.ndarray


class Sequential(UserTrainer[SequentialState]):
    """Trains blocks of a single user. All users share one module, into which each puts its
    parameters, unless the module remembers what it has seen."""

    name = "sequential"
    limits = Limits(user_bytes=1, row_bytes=0, budget=1)

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem, ParameterLayout([p.shape for p in problem.model.parameters()]))
        self.shared = shared_module(problem.model)

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        model = self.problem.model
        before = own_code(model).seen
        with kept_generators(self.problem.start.device):
            result = super().run(users, memory)
            if not self.shared.is_clean():
                result = super().run(users, memory)
        if own_code(model).seen != before:
            raise refused(model, "code that changes no variable outside the network")
        return result

    def _filled(self, users: TrainingUsers) -> TrainingUsers:
        return users

    def init(self, keys: np.ndarray) -> SequentialState:
        assert len(keys) == 1
        pieces = torch.split(self.problem.start.clone(), self.layout.sizes)
        shapes = zip(pieces, self.layout.shapes)
        parameters = [piece.view(1, *shape) for piece, shape in shapes]
        slots = self.problem.recipe.optimizer.init(parameters)
        module = self.shared.module
        if module is None:
            module = copy.deepcopy(self.problem.model).train()
        return SequentialState(parameters, slots, module, list(module.parameters()), keys)

    def step(self, state: SequentialState, step: BatchStep) -> None:
        batch = step.batch
        seed = int(branch(branch(state.keys, step.epoch), step.place)[0])
        leaves = state.leaves
        for leaf, own in zip(leaves, state.parameters):
            leaf.data = own[0]
        seed_generators(batch.x.device, seed >> 1)
        with torch.enable_grad():
            loss = self.problem.task.loss(state.module(batch.x[0]), batch.y[0], batch.weight[0])
            gradients = torch.autograd.grad(loss, leaves, materialize_grads=True)
        with torch.no_grad():
            self._descend(state, [gradient.unsqueeze(0) for gradient in gradients])


class _SharedModule:
    """The module that all users of a network share."""

    def __init__(self, model: nn.Module) -> None:
        self.module = None if may_remember(model) else copy.deepcopy(model).train()
        self.before = None if self.module is None else Snapshot(self.module)

    def is_clean(self) -> bool:
        """Whether the last user left the module as it was. If not, it is shared no longer."""
        if self.before is None or self.before.holds():
            return True
        self.module = self.before = None
        return False


shared_module = cached_by_model(_SharedModule)
