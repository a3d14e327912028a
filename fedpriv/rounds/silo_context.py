"""The silo that an algorithm works with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.parties.party import silo_name
from fedpriv.rounds.contributors import Contributors, Silos
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.query import PendingState, Query, SiloState
from fedpriv.training.contributions import Contributions
from fedpriv.training.description import Execution, Training

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.silo import SiloData
    from fedpriv.models.tasks import Task
    from fedpriv.rounds.plan import Plan
    from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Silo:
    """One silo as an algorithm sees it.

    index: position among the silos.
    data: training records.
    model: network into which the algorithm loads weights.
    task: loss and metrics.
    plan: public settings of the run.
    state: arrays that the algorithm stored in earlier rounds, read-only: a query without a sum
        changes none of them. Empty in the first round.
    execution: how local training is computed.
    contributors: the units whose vectors the algorithm declares.
    """

    index: int
    data: SiloData
    model: nn.Module
    task: Task
    plan: Plan
    state: SiloState = field(default_factory=dict)
    execution: Execution = Execution()
    contributors: Contributors = field(default_factory=Silos)

    @cached_property
    def name(self) -> str:
        """Name of the silo as a party."""
        return silo_name(self.index)

    @property
    def public_records(self) -> int:
        """The number of training records that the certificate takes as public. A neighbour of the
        file that lacks a record keeps it, so sampling rates and divisors are made of it."""
        return self.plan.federation.silo_records[self.index]

    @property
    def streams(self) -> Streams:
        return self.plan.streams

    def contribution(self, vector: np.ndarray) -> Contributions:
        """A vector (d,) that is the whole silo's."""
        import torch

        own = torch.from_numpy(vector).to(self.data.x.device)
        return Contributions(np.array([self.index]), own.unsqueeze(0))

    def dropout_keys(self, query: Query) -> np.ndarray:
        """(n,) uint64, from which each record of the silo draws its dropout in a query."""
        stream = query.stream("dropout")
        return self.streams.unit_keys(stream, query.round, self.name, self.data.records)

    def train(
        self, query: Query, training: Training, *, pending: PendingState | None = None
    ) -> LocalJob:
        """The job of the described local training: each user's change of the parameters, or the
        silo's if its records are pooled.

        pending: see `LocalJob`.

        Raises ValueError for training on all records where users or records are bounded: a silo's
        change moves by twice the bound without one of them.
        """
        if training.pooled and query.asked.enforced and not isinstance(self.contributors, Silos):
            raise ValueError(
                f"{self.name} would train on all of its records, and the algorithm declares "
                f"{type(self.contributors).__name__}: declare Silos"
            )
        return LocalJob(self._steps(query, training), pending=pending, training=training)

    def train_users(self, query: Query, start: np.ndarray) -> LocalJob:
        """The job in which each sampled user trains from `start` (d,) by the query's recipe, if its
        group takes part in the round. What silos remember has no part in it.

        Raises ValueError for a query without a recipe.
        """
        if query.asked.recipe is None:
            raise ValueError(f"query {query.name}: a request without a recipe needs `local_update`")
        sampled = query.sampled
        bounds = self.contributors.bounds(self.plan.federation, query.round)
        if bounds is not None and not bounds.all():
            sampled = bounds > 0 if sampled is None else sampled & (bounds > 0)
        users = None if sampled is None else np.flatnonzero(sampled[self.data.users])
        return self.train(query, Training(query.asked.recipe, start, users))

    def _steps(self, query: Query, training: Training) -> Computation:
        from fedpriv.training.users import silo_training

        # The work is not a local variable: each silo's copies of records would wait in memory.
        for block in (
            yield silo_training(
                training,
                model=self.model,
                data=self.data,
                task=self.task,
                streams=self.streams,
                round=query.round,
                party=self.name,
                prefix=stream_prefix(query),
                execution=self.execution,
            )
        ):
            yield replace(block, units=np.array([self.index])) if training.pooled else block


def stream_prefix(query: Query) -> str:
    """What the names of a query's streams of training begin with."""
    return query.name if query.place else ""
