"""Experiments with canaries: units with the largest possible contribution, among units whose
contributions are known.

The attack needs no access to the training code. Data and loss make the real code produce the
canaries. A record has features x of norm 1 and a label (slope, curvature). Its loss at parameters
theta is

    slope * z + curvature * z^2 / 2,    z = <theta, x>.

- A slope far above the clip bound gives a contribution of the full bound along x, for any theta.
- A slope of zero gives no contribution.
- A curvature of 1 / rate makes a silo forget its start, and with it the noise of earlier steps.
- A large negative curvature drives every later step away from zero, as far as clipping allows.

Several canaries can share a run. Each has its own coin and its own coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from fedpriv.data.allocate import Allocation, Allocator
from fedpriv.data.base import Corpus, DataSet, Records, with_corpus
from fedpriv.engines.inprocess import InProcess
from fedpriv.models.linear import Linear
from fedpriv.models.regression import ExponentialSurvival
from fedpriv.models.tasks import Task
from fedpriv.settings.experiment import Experiment
from fedpriv.util.streams import Streams

FEATURES = 4
"""Coordinates of each canary, and of the other units if they have their own."""


@dataclass(frozen=True)
class CanaryLoss(Task):
    """A quadratic loss in one output; labels are (slope, curvature)."""

    metric = "loss"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        z = outputs.squeeze(-1)
        return ((y[..., 0] * z + y[..., 1] * z.square() / 2) * weight).sum(-1)

    def gradient(
        self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor
    ) -> torch.Tensor:
        return ((y[..., 0] + y[..., 1] * outputs.squeeze(-1)) * weight).unsqueeze(-1)

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        return {"loss": float((y[:, 0] * outputs[:, 0] + y[:, 1] * outputs[:, 0] ** 2 / 2).mean())}


@dataclass(frozen=True)
class LinearLoss(ExponentialSurvival):
    """The same loss without curvature. It is that of exponential survival at time zero, which is
    compiled: labels are (-slope, 0)."""

    metric = "loss"

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        return {"loss": float(-(y[:, 0] * outputs[:, 0]).mean())}


@dataclass(frozen=True)
class CanaryData(DataSet):
    """Given records.

    records: features (n, d) and labels (n, 2).
    in_groups_of: `records_per_draw` of the audited run.
    task: the loss of the labels.
    """

    records: Records = field(
        default_factory=lambda: Records(np.zeros((1, 1)), np.zeros((1, 2))), compare=False
    )
    in_groups_of: int = 1
    task: Task = CanaryLoss()
    outputs = 1

    @property
    def records_per_draw(self) -> int:
        return self.in_groups_of

    @property
    def shape(self) -> tuple[int, ...]:
        return self.records.x.shape[1:]

    def load(self, streams: Streams) -> Corpus:
        return Corpus(self.records, Records(self.records.x[:1], self.records.y[:1]))


@dataclass(frozen=True)
class GivenAllocator(Allocator):
    """A given allocation.

    known: the allocation.
    """

    known: Allocation = field(kw_only=True)

    def one_silo_each(self, data: DataSet) -> bool:
        return bool(((self.known.counts() > 0).sum(axis=0) <= 1).all())

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        return self.known


@dataclass(frozen=True)
class Canaries:
    """An experiment with k canaries, each present or absent.

    original: the audited experiment.
    allocation: owner and silo of every record.
    x: (n, d) features.
    absent: (n, 2) labels if no canary is present.
    present: (n, 2) labels if all canaries are present.
    owner: (n,) the canary that a record belongs to; -1 for none.
    users: (k,) the canaries' users.
    silo: the canaries' silo; None: every silo.
    leaves: whether an absent canary's records do not train at all; otherwise they train with their
        labels for absence.
    """

    original: Experiment
    allocation: Allocation
    x: np.ndarray
    absent: np.ndarray
    present: np.ndarray
    owner: np.ndarray
    users: np.ndarray
    silo: int | None
    leaves: bool

    def __len__(self) -> int:
        return len(self.users)

    @property
    def linear(self) -> bool:
        """Whether no record's loss has a curvature."""
        return not (self.absent[:, 1].any() or self.present[:, 1].any())

    @property
    def alone(self) -> bool:
        """Whether only the canaries' silo has training records."""
        if self.silo is None:
            return False
        return not self.allocation.trains[self.allocation.silo != self.silo].any()

    @property
    def experiment(self) -> Experiment:
        """The audited experiment in this process, on records with all canaries present."""
        records, allocation = self.records(np.ones(len(self), dtype=bool))
        known = GivenAllocator(allocation.n_users, allocation.n_silos, known=allocation)
        own = self.components(records)
        return replace(self.original, allocator=known, engine=InProcess(), **own)

    def components(self, records: Records) -> dict[str, Any]:
        """The data set with these records, and the network that trains on them."""
        draws = self.original.data.records_per_draw
        task = LinearLoss() if self.linear else CanaryLoss()
        data = CanaryData(records=records, in_groups_of=draws, task=task)
        return {"data": data, "model": Linear(bias=False)}

    def records(self, present: np.ndarray) -> tuple[Records, Allocation]:
        """The records and their allocation if the canaries `present` (k,) bool are present."""
        there = (self.owner < 0) | present[self.owner]
        labels = np.where(there[:, None], self.present, self.absent).astype(np.float32)
        labels *= -1 if self.linear else 1
        trains = self.allocation.trains & there if self.leaves else self.allocation.trains
        return Records(self.x.astype(np.float32, copy=False), labels), replace(
            self.allocation, trains=trains
        )

    def mask(self, size: int) -> np.ndarray:
        """(k, size) bool: the coordinates of a message to which each canary contributes. Some
        messages hold several vectors: SCAFFOLD also sends its control variate."""
        if len(self) == 1:
            return np.ones((1, size), dtype=bool)
        owner = np.arange(size) % self.x.shape[1] // FEATURES
        return np.asarray(owner == np.arange(len(self))[:, None])


@dataclass(frozen=True)
class FileCanary(Canaries):
    """A user whose record is one of the run's own file, for methods that train no network.

    present, absent: (n, ...) labels of the file.
    """

    def components(self, records: Records) -> dict[str, Any]:
        given = Corpus(records, records)
        # Nothing is read again.
        load = {"load": lambda data, streams: given}
        return {"data": with_corpus(self.original.data, lambda corpus, _: corpus, **load)}

    def records(self, present: np.ndarray) -> tuple[Records, Allocation]:
        known = self.allocation
        there = (self.owner < 0) | present[self.owner]
        records = Records(self.x, self.present, known.silo, known.user)
        return records, replace(known, trains=there)


def canary_features(owner: np.ndarray, canaries: int) -> np.ndarray:
    """(n, canaries * FEATURES) unit vectors: a canary's along its coordinates, others' along
    all."""
    block = np.arange(canaries * FEATURES) // FEATURES
    x = np.where(owner[:, None] < 0, True, block == owner[:, None]).astype(float)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def independent_users(exp: Experiment, users: int) -> Allocation:
    """Users with one draw in every silo. Where users have one silo each, these are in the first
    one, and one more user in each of the others."""
    draws, n_silos = exp.data.records_per_draw, exp.allocator.n_silos
    user = np.repeat(np.arange(users), n_silos * draws)
    silo = np.tile(np.repeat(np.arange(n_silos), draws), users)
    if exp.algo.contributors.weighting.one_silo_each:
        user = np.repeat(np.arange(users + n_silos - 1), draws)
        silo = np.maximum(0, user - users + 1)
    return Allocation(user, silo, np.ones(len(user), dtype=bool), int(user.max()) + 1, n_silos)
