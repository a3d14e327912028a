"""Local training of one silo's users; the trainings of several silos can run in one batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.contributions import Contributions
from fedpriv.training.description import Training
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem, memory_budget
from fedpriv.util.work import Work


@dataclass(frozen=True, eq=False)
class SiloTraining(Work[Iterable[Contributions]]):
    """Training of one silo's users. The result is their contributions, in one block if the training
    ran in a batch.

    training: description of the training.
    problem: network, loss, start and recipe.
    users: users that train, by number of records, descending.
    trainer: of these users.
    running: gives the changes (k, d) of all users, whose training has started; None: it has not.
    """

    training: Training
    problem: LocalProblem
    users: TrainingUsers
    trainer: BlockTrainer
    running: Callable[[], Tensor] | None = None

    def run(self) -> Iterator[Contributions]:
        """Train this silo's users alone, in blocks that fit a fixed memory budget."""
        if self.running is not None:
            yield Contributions(self.users.ids, self.running())
            return
        if not len(self.users.positions):
            return
        trainer, users = self.trainer, self.users
        for start, stop in trainer.blocks(users.counts, users.size):
            block = users.part(slice(start, stop))
            found = Contributions(block.ids, *trainer.run(block, self.training.memory))
            if trainer.one_by_one:
                yield from found.rows()
            else:
                yield found

    @property
    def nbytes(self) -> int:
        return self._held if self.running is None else 0  # the GPU holds them already

    @property
    def _held(self) -> int:
        return 4 * len(self.users.positions) * len(self.problem.start)

    @cached_property
    def batch_key(self) -> Hashable:
        """None if batching gains nothing, if the result is too large to hold until the others
        are done, or if silos differ in more than their records. The key contains the network's
        identity, so runs of a sweep train separately."""
        problem = self.problem
        own = self.training.correction is not None or self.training.memory is not None
        if own or not self._joins or self._held > memory_budget(problem.start.device):
            return None
        start = hashlib.blake2b(self.training.start.tobytes(), digest_size=16).digest()
        same = id(problem.model), problem.task, problem.recipe, problem.execution
        return (
            *same,
            problem.shape,
            problem.dtype,
            problem.start.device,
            self.users.data.y.dtype,
            start,
        )

    @property
    def _joins(self) -> bool:
        """Whether the users train faster together with those of other silos."""
        return bool(len(self.users.positions)) and self.trainer.joins

    @classmethod
    def run_batch(cls, works: Sequence[SiloTraining]) -> list[Iterable[Contributions]]:
        trainer = works[0].trainer
        if all(work.running is not None for work in works):
            return [list(work.run()) for work in works]
        all_users = _AllUsers(works)
        found: list[list[Tensor]] = [[] for _ in works]
        for start, stop in trainer.blocks(all_users.counts, all_users.size):
            changes, _ = trainer.run(all_users.users(start, stop), None)
            owners = all_users.owners[start:stop]
            order = torch.from_numpy(np.argsort(owners, kind="stable")).to(changes.device)
            silos, numbers = np.unique(owners, return_counts=True)
            for silo, own in zip(silos.tolist(), torch.split(changes[order], numbers.tolist())):
                found[silo].append(own)
        # Users of a silo stay in their order: those with more records are in earlier blocks.
        return [[Contributions(work.users.ids, torch.cat(own))] for work, own in zip(works, found)]


class _AllUsers:
    """The users of several silos, by number of records, descending.

    works: trainings of the silos.
    counts: (n,): number of records of each user.
    owners: (n,): position of each user's silo in `works`.
    places: (n,): position of each user among the users of its silo.
    size: records of a batch.
    """

    def __init__(self, works: Sequence[SiloTraining]) -> None:
        self.works = works
        counts = np.concatenate([work.users.counts for work in works])
        numbers = [len(work.users.positions) for work in works]
        owners = np.repeat(np.arange(len(works)), numbers)
        places = np.concatenate([np.arange(k) for k in numbers])
        order = np.argsort(-counts, kind="stable")
        self.counts = counts[order]
        self.owners = owners[order]
        self.places = places[order]
        self.size = works[0].problem.recipe.batch_size or int(self.counts[0])

    def users(self, start: int, stop: int) -> TrainingUsers:
        """Users `start` to `stop`, with copies of their records, as if they were in one silo."""
        own = [
            (self.works[i].users, place)
            for i, place in zip(self.owners[start:stop], self.places[start:stop])
        ]
        rows = [users.data.rows(users.positions[place]) for users, place in own]
        x, y = (
            torch.cat([getattr(users.data, name)[at] for (users, _), at in zip(own, rows)])
            for name in "xy"
        )
        numbers = np.arange(stop - start)
        starts = np.concatenate([[0], np.cumsum(self.counts[start:stop])])
        dropout = np.array([users.dropout[place] for users, place in own], dtype=np.uint64)
        orders = None
        # A silo without orders has users of a single batch, which need no order here either.
        if self.counts[start] > self.size:
            orders = np.array(
                [0 if users.orders is None else users.orders[place] for users, place in own],
                np.uint64,
            )
        return TrainingUsers(SiloData(x, y, numbers, starts), numbers, self.size, orders, dropout)
