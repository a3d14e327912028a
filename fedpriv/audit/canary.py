"""Worlds with canaries: units whose contributions are as large as can be, while those of all others
are known.

The attack needs no access to the training code: data and loss are such that the real code makes the
canaries. A record has features x of norm 1 and a label (slope, curvature), with which its loss at
parameters theta is

    slope * z + curvature * z^2 / 2,    z = <theta, x>.

A slope far above the clip bound makes a contribution of the bound's full length along x, whatever
theta is; slope zero makes none. Curvature 1 / rate lets a silo forget where it started, and with it
the noise of its earlier steps; a large negative one makes every later step run away from zero, as
far as clipping lets it.

Several canaries can enter one run, each by a coin of its own, since each has coordinates of its
own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.data.allocate import Allocator
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.engines.inprocess import InProcess
from fedpriv.models.linear import Linear
from fedpriv.models.tasks import Task
from fedpriv.settings.experiment import Experiment

if TYPE_CHECKING:
    import torch

    from fedpriv.util.streams import Streams

FEATURES = 4
"""Coordinates of each canary; those of the others, where they have some of their own."""


@dataclass(frozen=True)
class CanaryLoss(Task):
    """Labels are (slope, curvature) of a quadratic loss in one output."""

    @property
    def metric(self) -> str:
        return "loss"

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
class CanaryData(DataSet):
    """Records that are already known."""

    records: Records = field(
        default_factory=lambda: Records(np.zeros((1, 1)), np.zeros((1, 2))), compare=False
    )
    outputs = 1
    task = CanaryLoss()

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.records.x.shape[1:]

    def load(self, streams: Streams) -> Corpus:
        return Corpus(self.records, Records(self.records.x[:1], self.records.y[:1]))


class CanaryPairs(CanaryData):
    """The same for runs whose records are drawn in pairs."""

    records_per_draw = 2


@dataclass(frozen=True)
class Fixed(Allocator):
    """An allocation that is already known."""

    known: Allocation = field(kw_only=True)

    def allocate(self, records: Records, data: DataSet, streams: Streams) -> Allocation:
        return self.known


@dataclass(frozen=True)
class Canaries:
    """An experiment that any of k canaries may enter.

    x: (n, d) features.
    absent, present: (n, 2) labels where no canary is present, and where all are.
    owner: (n,) the canary that a record belongs to, -1 for none.
    users: (k,) the canaries' users.
    silo: where they are; None: in all of them.
    leaves: whether the records of an absent canary do not train at all; else they have their absent
        labels.
    """

    like: Experiment
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
    def alone(self) -> bool:
        """Whether no silo but that of the canaries trains on anything."""
        return (
            self.silo is not None
            and not self.allocation.trains[self.allocation.silo != self.silo].any()
        )

    @property
    def experiment(self) -> Experiment:
        """That of the run with all canaries' records in place of its own, in this process."""
        records, allocation = self.world(np.ones(len(self), dtype=bool))
        data = (CanaryPairs if self.like.data.records_per_draw == 2 else CanaryData)(
            records=records
        )
        allocator = Fixed(allocation.n_users, allocation.n_silos, known=allocation)
        return replace(
            self.like, data=data, allocator=allocator, model=Linear(bias=False), engine=InProcess()
        )

    def world(self, present: np.ndarray) -> tuple[Records, Allocation]:
        """The records, and who trains on which, with the canaries of `present` (k,) bool."""
        there = (self.owner < 0) | present[self.owner]
        labels = np.where(there[:, None], self.present, self.absent).astype(np.float32)
        trains = self.allocation.trains & there if self.leaves else self.allocation.trains
        return Records(self.x.astype(np.float32, copy=False), labels), replace(
            self.allocation, trains=trains
        )

    def mask(self) -> np.ndarray:
        """(k, d) bool: the coordinates in which each canary shows."""
        if len(self) == 1:
            return np.ones((1, self.x.shape[1]), dtype=bool)
        own: np.ndarray = np.arange(self.x.shape[1]) // FEATURES == np.arange(len(self))[:, None]
        return own


def features(owner: np.ndarray, canaries: int) -> np.ndarray:
    """(n, canaries * FEATURES): records of a canary along its own coordinates, the others' along
    all of them."""
    block = np.arange(canaries * FEATURES) // FEATURES
    x = np.where(owner[:, None] < 0, True, block == owner[:, None]).astype(float)
    found: np.ndarray = x / np.linalg.norm(x, axis=1, keepdims=True)
    return found
