"""One user after another by autograd: for networks so large that a single user fills the machine,
and for those that no other trainer supports."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.modes import kept_generators, seed_generators
from fedpriv.training.network_checks import changes_outside, refuse_outside_state
from fedpriv.training.own_code import own_code
from fedpriv.training.schedule import BatchStep, Limits, Seats
from fedpriv.training.trainers.base import (
    LocalProblem,
    Result,
    TrainerState,
    TrainingUsers,
    UserTrainer,
    memory_budget,
)
from fedpriv.training.untouched import Snapshot, may_remember
from fedpriv.training.vectors import ParameterLayout, backward, taken_gradient
from fedpriv.util.streams import branch_one


@dataclass
class SequentialState(TrainerState):
    """The state of one user's training.

    flat: all parameters (d,), of which `parameters` are views.
    module: the network that computes its steps; its own if a network may remember what it has seen,
        such as running statistics.
    leaves: its parameters.
    key: the user's.
    """

    flat: Tensor
    module: nn.Module
    leaves: list[nn.Parameter]
    key: int


class Sequential(UserTrainer[SequentialState]):
    """Trains users one after the other. All users share one module, into which each puts its
    parameters, unless the module remembers what it has seen."""

    name = "sequential"
    one_by_one = True
    limits = Limits(user_bytes=1, row_bytes=0, budget=1)

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem, ParameterLayout([p.shape for p in problem.model.parameters()]))
        self.shared = shared_module(problem.model)
        self.shapes = [p.shape for p in problem.model.parameters()]

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        """Users whose results fit the budget; what a user does not change is looked at once."""
        start = self.problem.start
        most = max(1, memory_budget(start.device) // (4 * len(start)))
        return [(i, min(i + most, len(counts))) for i in range(0, len(counts), most)]

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        model = self.problem.model
        before = own_code(model).seen
        refuse_outside_state(model, self.problem.shape, self.problem.dtype)
        with kept_generators(self.problem.start.device):
            result = self._shared_run(users, memory)
        if own_code(model).seen != before:
            raise changes_outside(model)
        return result

    def _shared_run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        """Train all with one module; or each with its own, once one has left it changed."""
        if self.shared.module is not None:
            with suppress(_ChangedError):
                return super().run(users, memory)
        one = [users.part(slice(place, place + 1)) for place in range(len(users.positions))]
        changes, slots = zip(*(UserTrainer.run(self, user, memory) for user in one))
        return torch.cat(changes), {n: torch.cat([own[n] for own in slots]) for n in slots[0]}

    def _end(
        self, state: SequentialState, done: Seats, changes: Tensor, kept: Mapping[str, Tensor]
    ) -> None:
        super()._end(state, done, changes, kept)
        if not self.shared.is_clean():
            raise _ChangedError

    def changes(self, state: SequentialState, seats: slice | np.ndarray) -> Tensor:
        return (state.flat - self.problem.start).unsqueeze(0)

    def init(self, seats: int) -> SequentialState:
        assert seats == 1
        flat = self.problem.start.clone()
        pieces = zip(torch.split(flat, self.layout.sizes), self.shapes)
        parameters = [piece.view(1, *shape) for piece, shape in pieces]
        slots = self.problem.recipe.optimizer.init(parameters)
        module = self.shared.module
        leaves = self.shared.leaves
        if module is None:
            module = copy.deepcopy(self.problem.model).train()
            leaves = list(module.parameters())
        return SequentialState(parameters, slots, flat, module, leaves, 0)

    def begin_dropout(self, state: SequentialState, seats: np.ndarray, keys: np.ndarray) -> None:
        state.key = int(keys[0])

    def step(self, state: SequentialState, step: BatchStep) -> None:
        batch = step.batch
        seed = branch_one(branch_one(state.key, int(step.epochs[0])), int(step.places[0]))
        leaves = state.leaves
        for leaf, own in zip(leaves, state.parameters):
            leaf.data = own[0]
            leaf.grad = None
        seed_generators(batch.x.device, seed >> 1)
        with torch.enable_grad():
            outputs = state.module(batch.x[0].clone())  # which the network may overwrite
            loss = self.problem.task.loss(outputs, batch.y[0], batch.weight[0])
            backward(loss)
        with torch.no_grad():
            for leaf, own in zip(leaves, state.parameters):
                if leaf.data_ptr() != own.data_ptr():  # the forward pass has given it other data
                    own.copy_(leaf.data)
            gradients = [taken_gradient(leaf) for leaf in leaves]
            if self.problem.fused:
                for own, gradient in zip(state.parameters, gradients):
                    own.sub_(gradient, alpha=self.problem.recipe.lr)
            else:
                self._descend(state, [gradient.unsqueeze(0) for gradient in gradients])


class _ChangedError(Exception):
    """A user has changed the module that all share."""


class _SharedModule:
    """The module that all users of a network share."""

    def __init__(self, model: nn.Module) -> None:
        self.module = None if may_remember(model) else copy.deepcopy(model).train()
        self.leaves = [] if self.module is None else list(self.module.parameters())
        self.before = None if self.module is None else Snapshot(self.module)

    def is_clean(self) -> bool:
        """Whether the last user left the module as it was. If not, it is shared no longer."""
        if self.before is None or self.before.holds():
            return True
        self.module = self.before = None
        self.leaves = []
        return False


shared_module = cached_by_model(_SharedModule)
