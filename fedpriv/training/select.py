"""Which trainer each user gets. The rule depends on the network, the recipe and the number of the
user's own records, never on who else trains. So a repeated or resumed run chooses the same
trainers, and a user's bits stay the same if others come or go.

Milliseconds a user and batch step, measured on one core; the batched and the vmapped trainer have
64 users at once where they fit:

    network, parameters             rows   sequential   vmapped   batched   batched, one user
    creditcard MLP, 5 thousand        1     0.9          0.09      0.01      0.5
                                     64     1.3          0.4       0.16      0.7
    MNIST CNN, 22 thousand            1     1.6          0.25      0.13      0.7
                                     16     4.0          3.4       2.7       1.8
                                     64    13           18        11         7
    32-64 channel CNN, 50 thousand    4     3.7          2.9       2.1       1.9
                                     16    12           21         8         7
                                     64    52           80        58        36
    512-512 MLP, 670 thousand         1     0.7          3.4       0.4       0.3
                                     64     3.5          5.8       2.8       2.6

Of these the batched trainer is fastest wherever it supports the layers. The compiled trainer needs
a supported network and a C++ compiler. It takes a third to a seventh of the batched trainer's time
on dense networks of up to 10 thousand parameters, half at 100 thousand, as much at 270 thousand and
more beyond; two fifths on the MNIST CNN (`benchmarks.trainers`). Of the other two, the vmapped
trainer is faster while the fixed cost of a step dominates: small networks, few products a step. It
cannot train networks that draw random numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError, require
from fedpriv.models.tasks import Task
from fedpriv.training.cost import known_cost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.network_checks import (
    check_parameters,
    first_pass_changes,
    torch_func_obstacle,
)
from fedpriv.training.optimizers import LocalOptimizer, treats_numbers_alike
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem
from fedpriv.training.trainers.batched import Batched
from fedpriv.training.trainers.compile_layers import compile_layers
from fedpriv.training.trainers.compiled.trainer import compiled
from fedpriv.training.trainers.device.trainer import device_trainer
from fedpriv.training.trainers.sequential import Sequential
from fedpriv.training.trainers.vmapped import Vmapped, can_be_vmapped

PRODUCTS_LIMIT = 2**17
"""Multiply-adds of a user's batch, or of one step of its recurrent layers, from which on a whole
stack takes longer than one user alone. A user may be the only one of a stack."""
PARAMETERS_LIMIT = 250_000
"""Parameters from which on moving all users' gradients through memory costs more than it saves."""
COMPILED_LIMIT = 250_000
"""Parameters from which on a user's network does not fit a core's cache, so that the products of
libraries are faster."""

RECORDS = 1, 64
"""Records of a batch for which a run says its trainer: of the smallest user and an ordinary one."""

Selection = list[tuple[BlockTrainer, np.ndarray]]


def select_trainers(problem: LocalProblem, rows: np.ndarray) -> Selection:
    """Trainers for users whose largest batches have `rows` (k,) records, each with the indices of
    the users it trains.

    Raises ConfigError where the trainer of the settings cannot train the problem.
    """
    return CHOICES[problem.execution.trainer](problem, rows)


def isolated_trainers(problem: LocalProblem, rows: np.ndarray) -> Selection:
    """The same, if no bit of a user's result may depend on other users, as a certificate for users
    takes for granted.

    Users of a stack share kernels. No bit of theirs has been seen to depend on who is in the stack,
    but that is a property of the library. Compiled and sequential training compute each user alone,
    and so does a block of the GPU's kernel.

    Raises ConfigError as `select_trainers` does, and for the batched trainer.
    """
    trainer = problem.execution.trainer
    allowed = "auto, compiled, device or sequential: with randomness=system, users train alone"
    require(trainer != "batched", "trainer", trainer, allowed)
    if trainer != "auto":
        return CHOICES[trainer](problem, rows)
    fast, why = _fast(problem)
    if fast is not None:
        return _all_by(fast, rows, why)
    return _all_by(Sequential(problem), rows, "users one by one, by autograd" + why)


def check_trainer(
    execution: Execution,
    model: nn.Module,
    start: Tensor,
    shape: tuple[int, ...],
    task: Task,
    optimizer: LocalOptimizer,
    dtype: torch.dtype,
    *,
    isolated: bool = False,
) -> str:
    """What trains users from `start` (d,) on records of `shape`, and why: a line.

    Raises ConfigError where `select_trainers` would.
    """
    problem = example_problem(execution, model, start, shape, task, optimizer, dtype)
    rows = np.array(RECORDS)
    selection = (isolated_trainers if isolated else select_trainers)(problem, rows)
    return "; ".join(f"{trainer.name}: {trainer.reason}" for trainer, _ in selection)


def example_problem(
    execution: Execution,
    model: nn.Module,
    start: Tensor,
    shape: tuple[int, ...],
    task: Task,
    optimizer: LocalOptimizer,
    dtype: torch.dtype,
) -> LocalProblem:
    """A problem with the shortest recipe. Raises ConfigError for parameters that are not
    float32."""
    check_parameters(model, (torch.float32,))
    cost = known_cost(model, shape, dtype)
    recipe = Recipe(1, None, 1.0, optimizer)
    return LocalProblem(model, cost, shape, task, recipe, start, dtype=dtype, execution=execution)


def _by_size(problem: LocalProblem, rows: np.ndarray) -> Selection:
    fast, obstacle = _fast(problem)
    if fast is not None:
        return _all_by(fast, rows, obstacle)
    if not treats_numbers_alike(problem.recipe.optimizer):
        return _all_by(Sequential(problem), rows, "users one by one: " + WHOLE_PARAMETERS)
    links = compile_layers(problem.model, problem.shape)
    if links is not None:
        return _all_by(Batched(problem, links), rows, "equal users side by side" + obstacle)
    light = _light(problem, rows)
    selection: Selection = []
    for trainer, chosen, why in (
        (Vmapped, light, "equal users of few records side by side"),
        (Sequential, ~light, "users one by one, by autograd"),
    ):
        if chosen.any():
            made = trainer(problem)
            made.reason = why + obstacle
            selection.append((made, np.flatnonzero(chosen)))
    return selection


def _fast(problem: LocalProblem) -> tuple[BlockTrainer | None, str]:
    """The trainer that trains each user alone and fast, and why; or None, and what stands against
    it, as the end of a line."""
    if problem.start.device.type == "cuda":
        return None, "; not compiled: it needs a processor"
    if problem.cost.parameters >= COMPILED_LIMIT:
        return None, f"; not compiled: {COMPILED_LIMIT} parameters or more do not fit a cache"
    found = compiled(problem)
    if isinstance(found, Unmapped):
        return None, f"; not compiled: {found.reason}"
    return found, "every layer is compiled"


def _light(problem: LocalProblem, rows: np.ndarray) -> np.ndarray:
    """Which users (k,) bool train faster in a stack, whoever else is there."""
    light = rows * problem.cost.products < PRODUCTS_LIMIT * problem.cost.steps
    small = problem.cost.parameters < PARAMETERS_LIMIT
    given = problem.model, problem.shape, problem.dtype
    if not small or torch_func_obstacle(*given) is not None or first_pass_changes(*given):
        return np.zeros_like(light)
    for own in np.unique(rows[light]).tolist():
        # The last batch of a user may be a single record, which some networks treat differently.
        able = can_be_vmapped(problem, own) and (own == 1 or can_be_vmapped(problem, 1))
        light &= (rows != own) | able
    return light


def _compiled(problem: LocalProblem, rows: np.ndarray) -> Selection:
    trainer = compiled(problem)
    if isinstance(trainer, Unmapped):
        allowed = f"auto, batched or sequential here: {trainer.reason}"
        raise ConfigError("trainer", "compiled", allowed)
    return _all_by(trainer, rows, ASKED)


def _device(problem: LocalProblem, rows: np.ndarray) -> Selection:
    trainer = device_trainer(problem)
    if isinstance(trainer, Unmapped):
        allowed = f"auto, compiled, batched or sequential here: {trainer.reason}"
        raise ConfigError("trainer", "device", allowed)
    return _all_by(trainer, rows, ASKED)


def _batched(problem: LocalProblem, rows: np.ndarray) -> Selection:
    if not treats_numbers_alike(problem.recipe.optimizer):
        raise ConfigError("trainer", "batched", f"auto or sequential here: {WHOLE_PARAMETERS}")
    links = compile_layers(problem.model, problem.shape)
    if links is None:
        raise ConfigError(
            "trainer",
            "batched",
            "auto or sequential here: the network is no chain of layers that it supports",
        )
    return _all_by(Batched(problem, links), rows, ASKED)


def _sequential(problem: LocalProblem, rows: np.ndarray) -> Selection:
    return _all_by(Sequential(problem), rows, ASKED)


def _all_by(trainer: BlockTrainer, rows: np.ndarray, reason: str) -> Selection:
    trainer.reason = reason
    return [(trainer, np.arange(len(rows)))]


ASKED = "asked for"
WHOLE_PARAMETERS = "the optimiser depends on which parameter a number belongs to"
CHOICES = {
    "auto": _by_size,
    "compiled": _compiled,
    "device": _device,
    "batched": _batched,
    "sequential": _sequential,
}
