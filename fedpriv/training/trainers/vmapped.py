"""All users of a block at once by torch.func.vmap, for any network that vmap can batch and that
draws no random numbers: vmap would draw them by a user's place in the block."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.lstm_steps import stepwise
from fedpriv.training.modes import in_mode, modes
from fedpriv.training.own_code import own_code
from fedpriv.training.schedule import BatchStep, Limits
from fedpriv.training.threads import one_thread
from fedpriv.training.trainers.base import LocalProblem, TrainerState, UserTrainer, memory_budget
from fedpriv.training.untouched import appearance, has_hidden_attributes, has_hooks
from fedpriv.training.vectors import ParameterLayout, call, flatten, unflatten

COPIES = 5
"""How many copies of a row's activations autograd holds at its peak; measured."""


class Vmapped(UserTrainer[TrainerState]):
    """Trains the users of a block in lockstep: vmap transforms the gradient of one user into that
    of all. The only stack is that of the flat vectors."""

    name = "vmapped"

    def __init__(self, problem: LocalProblem) -> None:
        super().__init__(problem, ParameterLayout([(problem.cost.parameters,)]))
        self.model = model = stepwise(problem.model)
        task = problem.task
        cost = problem.cost
        self.limits = Limits(
            user_bytes=4 * (4 + problem.extra_numbers) * cost.parameters,
            row_bytes=4 * COPIES * cost.activations,
            budget=memory_budget(problem.start.device),
        )

        def loss(vector: Tensor, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
            return task.loss(call(model, unflatten(model, vector), x), y, weight)

        self.gradients = vmap(grad(loss), randomness="error")

    def init(self, seats: int) -> TrainerState:
        parameters = self._stacks(seats)
        return TrainerState(parameters, self.problem.recipe.optimizer.init(parameters))

    def begin_dropout(self, state: TrainerState, seats: np.ndarray, keys: np.ndarray) -> None:
        """There is none."""

    def step(self, state: TrainerState, step: BatchStep) -> None:
        batch = step.batch
        active = state.parameters[0][: len(batch.x)]
        with in_mode(self.model, train=True):
            self._descend(state, [self.gradients(active, batch.x.clone(), batch.y, batch.weight)])


def can_be_vmapped(problem: LocalProblem, rows: int) -> bool:
    """Whether vmap can run the problem's model in training on batches of `rows` records, and a
    user's bits do not depend on its seat in a stack."""
    if own_code(problem.model).hidden is not None or has_hooks(problem.model):
        return False
    seats = Vmapped(problem).limits.stack(rows)
    if has_hidden_attributes(problem.model) or seats == 1:
        return False
    return _equal_in_every_seat(problem.model, problem.shape, problem.dtype, rows, seats)


@cached_by_model
def _equal_in_every_seat(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, rows: int, seats: int
) -> bool:
    """Whether equal users have equal gradients in all seats, bit for bit, tried on random records.

    They are not where a kernel falls short of whole vectors inside a row, as that of a sigmoid may,
    and in grouped convolutions. Numbers of 16 bits fall short of whole vectors and differ too
    seldom to be seen, so they count as not equal.
    """
    vector = flatten(model)
    own = copy.deepcopy(stepwise(model))
    before = appearance(own)
    generator = torch.Generator().manual_seed(rows)
    vector = vector + 0.1 * torch.randn(len(vector), generator=generator).to(vector)
    x = torch.randn((rows, *shape), generator=generator).to(vector.device, dtype)
    if not dtype.is_floating_point:
        x = torch.zeros_like(x)  # which every embedding knows

    def outputs_sum(vector: Tensor, x: Tensor) -> Tensor:
        outputs = call(own, unflatten(own, vector), x)
        factors = torch.linspace(-1, 1, outputs.numel(), device=x.device)
        return (outputs * factors.view(outputs.shape)).sum()

    short = _ShortNumbers()
    users = [one.expand(seats, *one.shape).contiguous() for one in (vector, x)]
    try:
        # On one thread, as in training.
        with in_mode(own, train=True), one_thread(True), short:
            ready = modes(own)
            found = vmap(grad(outputs_sum), randomness="error")(*users)
            same = modes(own) == ready
    except Exception:  # of vmap, or of the network's own code, which need not know such records
        return False
    if short.found:
        return False
    if appearance(own) != before or not same:
        return False  # it remembers, and users of a stack would share that
    return torch.equal(found, found[:1].expand_as(found))


class _ShortNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context that finds out whether torch computes floats of fewer than 32 bits."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.found = self.found or any(
            own.is_floating_point() and own.element_size() < 4
            for own in tree_leaves(result)
            if isinstance(own, Tensor)
        )
        return result
