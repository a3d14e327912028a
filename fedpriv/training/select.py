"""Which trainer a training gets. The rule depends on the network, the recipe and the settings, and
never on who trains.

`compiled` trains each user alone in C++, where it knows the network, loss and optimiser. It takes a
third to a seventh of torch's time on networks of up to 10 thousand parameters. `plain` trains each
user alone by autograd, whatever the network. Where neither noise nor certificate is real, `batched`
trains many users at once. On small networks, and on GPUs, that takes a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError
from fedpriv.models.tasks import Task
from fedpriv.training.cost import known_cost
from fedpriv.training.description import Execution, Recipe
from fedpriv.training.graph import Uncaptured, captured
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.network_checks import check_parameters
from fedpriv.training.optimizers import LocalOptimizer
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem
from fedpriv.training.trainers.batched import batched
from fedpriv.training.trainers.compiled.trainer import compiled
from fedpriv.training.trainers.device.trainer import device_trainer
from fedpriv.training.trainers.plain import Plain

PRODUCTS_LIMIT = 2**17
"""Multiply-adds of a batch, or of one step of its recurrent layers, from which on one user fills a
core."""
ROWS = 16
"""Records of an ordinary batch."""
PARAMETERS_LIMIT = 250_000
"""Parameters from which on a user's network does not fit a core's cache, so that the products of
libraries are faster, and moving many users' gradients through memory costs more than it saves."""

MAKERS: dict[str, Callable[[LocalProblem], BlockTrainer | Unmapped]] = {
    "compiled": compiled,
    "device": device_trainer,
    "batched": batched,
    "plain": Plain,
}
ASKED = "asked for"


def select_trainer(problem: LocalProblem, *, alone: bool) -> BlockTrainer:
    """The trainer of a problem.

    alone: whether no bit of a user's result may depend on other users, as a certificate for users
        takes for granted.

    Raises ConfigError where the trainer of the settings cannot train the problem.
    """
    asked = problem.execution.trainer
    if asked == "auto":
        return _fastest(problem, alone)
    if alone and asked == "batched":
        allowed = "auto, compiled, device or plain: with randomness=system, users train alone"
        raise ConfigError("trainer", asked, allowed)
    trainer = MAKERS[asked](problem)
    if isinstance(trainer, Unmapped):
        raise ConfigError("trainer", asked, f"auto or plain here: {trainer.reason}")
    trainer.reason = ASKED
    return trainer


def _fastest(problem: LocalProblem, alone: bool) -> BlockTrainer:
    large = problem.cost.parameters >= PARAMETERS_LIMIT
    on_gpu = problem.start.device.type == "cuda"
    found = Unmapped(f"{PARAMETERS_LIMIT} parameters or more") if large else compiled(problem)
    if not isinstance(found, Unmapped):
        found.reason = "every layer is compiled"
        return found
    obstacle = f"not compiled: {found.reason}"
    light = ROWS * problem.cost.products < PRODUCTS_LIMIT * problem.cost.steps and not large
    if not alone and (light or on_gpu):
        many = batched(problem, draws=on_gpu)
        if not isinstance(many, Unmapped):
            many.reason = f"users side by side; {obstacle}"
            return many
    trainer = Plain(problem)
    trainer.reason = f"users one by one, by autograd; {obstacle}"
    network = captured(problem.model, problem.shape, problem.dtype)
    if isinstance(network, Uncaptured):
        trainer.reason += f"; not captured: {network.reason}"
    return trainer


def example_problem(
    execution: Execution,
    model: nn.Module,
    start: Tensor,
    shape: tuple[int, ...],
    task: Task,
    optimizer: LocalOptimizer,
    dtype: torch.dtype,
) -> LocalProblem:
    """The training of users from `start` (d,) on records of `shape`, by the shortest recipe. Raises
    ConfigError for parameters that are not float32."""
    check_parameters(model, (torch.float32,))
    cost = known_cost(model, shape, dtype)
    recipe = Recipe(1, None, 1.0, optimizer)
    return LocalProblem(model, cost, shape, task, recipe, start, dtype=dtype, execution=execution)
