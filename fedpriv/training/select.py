"""Which trainer each user gets. The rule depends on sizes alone, so that a repeated or resumed run
chooses the same trainers.

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
trainer is faster while the fixed cost of a step dominates: several users, small networks, few
products a step. It cannot train networks that draw random numbers.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError, require
from fedpriv.models.tasks import Task
from fedpriv.training.cost import known_cost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.network_checks import check_parameters, torch_func_obstacle
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem
from fedpriv.training.trainers.batched import Batched
from fedpriv.training.trainers.compile_layers import compile_layers
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.trainer import compiled
from fedpriv.training.trainers.sequential import Sequential
from fedpriv.training.trainers.vmapped import Vmapped, can_be_vmapped

MIN_VMAPPED_USERS = 6
"""With fewer users than this, vmap costs more than it saves."""
PRODUCTS_LIMIT = 8_000_000
"""Multiply-adds in a user's forward pass from which on the arithmetic outweighs the fixed cost of a
step."""
PARAMETERS_LIMIT = 250_000
"""Parameters from which on moving all users' gradients through memory costs more than it saves."""
COMPILED_LIMIT = 250_000
"""Parameters from which on a user's network does not fit a core's cache, so that the products of
libraries are faster."""

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

    Users that share the kernels of one block change each other's last bits, and many steps amplify
    that, by more than half the clip bound on digits in 200 epochs. Compiled and sequential training
    compute each user alone.

    Raises ConfigError as `select_trainers` does, and for the batched trainer.
    """
    trainer = problem.execution.trainer
    allowed = "auto, compiled or sequential: with randomness=system, users train one by one"
    require(trainer != "batched", "trainer", trainer, allowed)
    if trainer != "auto":
        return CHOICES[trainer](problem, rows)
    fast = compiled(problem) if problem.cost.parameters < COMPILED_LIMIT else None
    return _all_by(fast or Sequential(problem), rows)


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
) -> None:
    """Raise ConfigError where `select_trainers` would, for training from `start` (d,) on records of
    `shape`."""
    check_parameters(model, (torch.float32,))
    cost = known_cost(model, shape, dtype)
    recipe = Recipe(1, None, 1.0, optimizer)
    problem = LocalProblem(
        model, cost, shape, task, recipe, start, dtype=dtype, execution=execution
    )
    (isolated_trainers if isolated else select_trainers)(problem, np.ones(1, dtype=np.int64))


def _by_size(problem: LocalProblem, rows: np.ndarray) -> Selection:
    fast = compiled(problem) if problem.cost.parameters < COMPILED_LIMIT else None
    if fast is not None:
        return _all_by(fast, rows)
    links = compile_layers(problem.model, problem.shape)
    if links is not None:
        return _all_by(Batched(problem, links), rows)
    light = (rows * problem.cost.products < PRODUCTS_LIMIT) & (
        problem.cost.parameters < PARAMETERS_LIMIT
    )
    few = light.sum() < MIN_VMAPPED_USERS
    obstacle = torch_func_obstacle(problem.model, problem.shape, problem.dtype)
    if few or obstacle is not None or not can_be_vmapped(problem):
        light[:] = False
    selection: Selection = []
    if light.any():
        selection.append((Vmapped(problem), np.flatnonzero(light)))
    if not light.all():
        selection.append((Sequential(problem), np.flatnonzero(~light)))
    return selection


def _compiled(problem: LocalProblem, rows: np.ndarray) -> Selection:
    trainer = compiled(problem)
    if trainer is None:
        reason = (
            "needs a C++ compiler"
            if library() is None
            else "does not support this network, loss, optimiser or device"
        )
        raise ConfigError("trainer", "compiled", f"auto, batched or sequential here: it {reason}")
    return _all_by(trainer, rows)


def _batched(problem: LocalProblem, rows: np.ndarray) -> Selection:
    links = compile_layers(problem.model, problem.shape)
    if links is None:
        raise ConfigError(
            "trainer",
            "batched",
            "auto or sequential here: the network is no chain of supported layers",
        )
    return _all_by(Batched(problem, links), rows)


def _sequential(problem: LocalProblem, rows: np.ndarray) -> Selection:
    return _all_by(Sequential(problem), rows)


def _all_by(trainer: BlockTrainer, rows: np.ndarray) -> Selection:
    return [(trainer, np.arange(len(rows)))]


CHOICES = {"auto": _by_size, "compiled": _compiled, "batched": _batched, "sequential": _sequential}
