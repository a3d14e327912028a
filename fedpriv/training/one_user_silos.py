"""Training of silos with one user each, such as devices.

What they share is prepared once, and their changes are rows of one matrix. The bits are those of
`fedpriv.training.users`, silo by silo.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import nn

from fedpriv.data.silo import SiloData
from fedpriv.models.tasks import Task
from fedpriv.training.description import Execution, Recipe, Training
from fedpriv.training.freed_memory import keep_freed_memory
from fedpriv.training.network_checks import refuse_shared_state
from fedpriv.training.select import PARAMETERS_LIMIT, select_trainer
from fedpriv.training.trainers.compiled.trainer import Compiled, Owner
from fedpriv.training.users import local_problem, names_of_streams
from fedpriv.util.streams import Streams


class OneUser(NamedTuple):
    """One silo's training.

    data: the silo's records.
    party: name of the silo.
    position: of the user in `data.users`; None: the user owns all records.
    unit: what the contribution is of: the user, or the silo.
    """

    data: SiloData
    party: str
    position: int | None
    unit: int


@dataclass(frozen=True, eq=False)
class SharedTraining:
    """What the trainings of many silos for one query have in common.

    key: all of it but `start`.
    recipe: of the training.
    start: (d,) float64: parameters that all users start from.
    trainer: trains one user after another; None: users of these silos need another trainer.
    """

    key: tuple[object, ...]
    recipe: Recipe
    start: np.ndarray
    trainer: Compiled | None

    def run(
        self, users: Sequence[OneUser], *, streams: Streams, round: int, prefix: str
    ) -> np.ndarray:
        """Train the users; their changes of the parameters, (k, d) float32.

        Every silo has records.
        """
        assert self.trainer is not None
        keep_freed_memory()
        owners = []
        ordered = False
        for user in users:
            data = user.data
            most = len(data.x) if user.position is None else int(data.counts[user.position])
            largest = most if user.position is None else int(data.counts.max())
            size = self.recipe.batch_size or largest
            ordered = ordered or largest > size
            owners.append(Owner(data, user.position, size, most))
        ids = np.array(
            [0 if own.position is None else own.data.users[own.position] for own in users],
            dtype=np.int64,
        )
        parties = [user.party for user in users]
        batches, dropout = (
            streams.first_keys(name, round, parties, ids) for name in names_of_streams(prefix)
        )
        deltas = np.empty((len(users), len(self.start)), dtype=np.float32)
        self.trainer.run_owners(owners, batches if ordered else dropout, dropout, deltas)
        return deltas


class _Last(threading.local):
    shared: SharedTraining | None = None


_last = _Last()


def shared_training(
    training: Training,
    *,
    model: nn.Module,
    data: SiloData,
    task: Task,
    execution: Execution,
    streams: Streams,
) -> SharedTraining | None:
    """What this training shares with those of other silos, if one user after another trains in
    compiled code; else None. The last answer of a thread is kept.

    Raises ConfigError as `silo_training` does.
    """
    stateful = training.correction is not None or training.memory is not None
    if stateful or execution.workers > 1 or len(training.start) >= PARAMETERS_LIMIT:
        return None
    isolated = streams.system and not training.pooled
    form = data.x.shape[1:], data.x.dtype, data.y.dtype, data.x.device
    key = model, task, training.recipe, training.pooled, execution, isolated, form
    known = _last.shared
    if known is None or known.key != key or not _equal(known.start, training.start):
        if not training.pooled:
            refuse_shared_state(model)
        problem = local_problem(training, model, data, task=task, execution=execution)
        trainer = select_trainer(problem, alone=isolated)
        own = trainer if isinstance(trainer, Compiled) else None
        known = _last.shared = SharedTraining(key, training.recipe, training.start, own)
    return known if known.trainer is not None else None


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two vectors (d,) float64 have the same bits."""
    return one is other or np.array_equal(one.view(np.uint64), other.view(np.uint64))
