"""Local training of the users of a silo."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.models.tasks import Task
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.cost import known_cost
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.freed_memory import keep_freed_memory
from fedpriv.training.network_checks import check_parameters, refuse_shared_state
from fedpriv.training.select import select_trainer
from fedpriv.training.silo_training import SiloTraining
from fedpriv.training.trainers.base import LocalProblem
from fedpriv.util.streams import Streams


def silo_training(
    training: Training,
    *,
    model: nn.Module,
    data: SiloData,
    task: Task,
    streams: Streams,
    round: int,
    party: str,
    prefix: str = "",
    execution: Execution = Execution(),
) -> SiloTraining:
    """Prepare the described training on the silo's records.

    This is LocalTrain of Kato et al. (Uldp-FL, PVLDB 2024). The loss is averaged inside each batch,
    the last batch of a pass may be smaller, and dropout is active. Each user trains exactly once,
    in no particular order, in blocks that fit a fixed memory budget.

    A user's batches and dropout depend on (seed, round, party, prefix, user) only, not on other
    users or on blocks. Removing a user changes no bit of the others' results (see `schedule`). With
    system randomness no result is reproducible.

    training: description of the training.
    model: template; it is not changed. Every training starts from its buffers, such as running
        statistics.
    data: records of the silo. Integer features reach the model unchanged.
    task: loss and metrics.
    streams: random streams of the run.
    round: number of the round.
    party: name of the silo.
    prefix: prefix of the names of the random streams.
    execution: how the training is computed.

    Raises ConfigError for a model that mixes records, such as one with BatchNorm, unless all
    records are pooled.
    """
    if training.pooled:
        data = data.pooled()
    else:
        refuse_shared_state(model)
    counts = data.counts
    chosen = (
        np.arange(len(counts))
        if training.users is None
        else np.asarray(training.users, dtype=np.int64)
    )
    problem = local_problem(training, model, data, task=task, execution=execution)
    trainer = select_trainer(problem, alone=streams.system and not training.pooled)
    if not len(chosen):
        nobody = TrainingUsers(data, chosen, 1, None, chosen.astype(np.uint64))
        return SiloTraining(training, problem, nobody, trainer)
    keep_freed_memory()
    everyone = _users(data, training.recipe, streams, prefix, round, party)
    users = everyone.part(chosen[np.argsort(-counts[chosen], kind="stable")])
    running = None
    if len(trainer.blocks(users.counts, users.size)) == 1:
        running = trainer.begin(users)
    return SiloTraining(training, problem, users, trainer, running)


def _users(
    data: SiloData, recipe: Recipe, streams: Streams, prefix: str, round: int, party: str
) -> TrainingUsers:
    """All users of the silo, with their keys of batches and dropout."""
    size = recipe.batch_size or int(data.counts.max())
    orders = None
    batches, drops = names_of_streams(prefix)
    if data.counts.max() > size:
        orders = streams.unit_keys(batches, round, party, data.users)
    dropout = streams.unit_keys(drops, round, party, data.users)
    return TrainingUsers(data, np.arange(len(data.counts)), size, orders, dropout)


def names_of_streams(prefix: str) -> tuple[str, str]:
    """Purposes of the keys of batches and of dropout."""
    return f"{prefix} batches".lstrip(), f"{prefix} dropout".lstrip()


def local_problem(
    training: Training, model: nn.Module, data: SiloData, *, task: Task, execution: Execution
) -> LocalProblem:
    """What the users of a training share."""

    def on_device(vector: np.ndarray) -> torch.Tensor:
        return torch.tensor(vector, dtype=torch.float32, device=data.x.device)

    check_parameters(model, (torch.float32,))
    shape = tuple(data.x.shape[1:])
    return LocalProblem(
        model=model,
        cost=known_cost(model, shape, data.x.dtype),
        shape=shape,
        task=task,
        recipe=training.recipe,
        start=on_device(training.start),
        correction=None if training.correction is None else on_device(training.correction),
        dtype=data.x.dtype,
        execution=execution,
    )
