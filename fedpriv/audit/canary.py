"""Worlds with a canary: a unit whose contribution is as large as can be, while all others contribute nothing.

The attack needs no access to the training code: data and loss are such that the real code makes the canary. Every
record has the same features u of norm 1, and a label (slope, curvature) with which its loss at parameters theta is

    slope * z + curvature * z^2 / 2,    z = <theta, u>.

A slope far above the clip bound makes a contribution of the bound's full length along u, whatever theta is; slope zero
makes none. Curvature lets a silo forget where it started, and with it the noise of its earlier steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.config import Experiment
from fedpriv.data.allocate import Allocator
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.engines.inprocess import InProcess
from fedpriv.models.linear import Linear
from fedpriv.simulation import allocate
from fedpriv.tasks import Task

if TYPE_CHECKING:
    import torch

    from fedpriv.streams import Streams

FEATURES = 4
"""Parameters of the canary's model."""
SLOPE = 1e5
"""Of the canary's loss: far above every clip bound that somebody would choose."""
PULL = 10.0
"""Slope of the others' losses where they pull the other way: above the bound too, and outweighed by the canary's."""


@dataclass(frozen=True)
class CanaryLoss(Task):
    """Labels are (slope, curvature) of a quadratic loss in one output."""

    @property
    def metric(self) -> str:
        return "loss"

    def loss(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        z = outputs.squeeze(-1)
        return ((y[..., 0] * z + y[..., 1] * z.square() / 2) * weight).sum(-1)

    def gradient(self, outputs: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return ((y[..., 0] + y[..., 1] * outputs.squeeze(-1)) * weight).unsqueeze(-1)

    def metrics(self, outputs: np.ndarray, y: np.ndarray) -> dict[str, float]:
        return {"loss": float((y[:, 0] * outputs[:, 0] + y[:, 1] * outputs[:, 0] ** 2 / 2).mean())}


@dataclass(frozen=True)
class CanaryData(DataSet):
    """Records that differ in their labels (n, 2) alone."""

    labels: np.ndarray = field(default_factory=lambda: np.zeros((1, 2)), compare=False)
    shape = (FEATURES,)
    outputs = 1

    @property
    def task(self) -> Task:
        return CanaryLoss()

    def load(self, streams: Streams) -> Corpus:
        x = np.full((len(self.labels), FEATURES), FEATURES**-0.5, dtype=np.float32)
        y = self.labels.astype(np.float32)
        return Corpus(Records(x, y), Records(x[:1], y[:1]))


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
class Canary:
    """Two neighbouring experiments, without and with the canary (or with its two faces), and who it is.

    silo: where it is; None: in all of them. user: its owner.
    """

    worlds: tuple[Experiment, Experiment]
    user: int
    silo: int | None


def canaries(exp: Experiment, unit: str, replaces: bool) -> list[Canary]:
    """Candidates for the worst pair of neighbouring experiments for `unit`, made like those of the run `exp`.

    replaces: whether neighbours replace a unit instead of adding one. Algorithms, aggregation, mechanism and optimiser
    are the run's. Silos keep their numbers of records where certificates depend on them; else two users have one record
    in each silo.
    """
    if exp.algo.queries_need_allocation:
        return [_among_real_sizes(exp, unit, replaces)]
    silos = exp.allocator.n_silos
    draws = exp.data.records_per_draw
    user, silo = np.repeat([0, 1], silos * draws), np.tile(np.repeat(np.arange(silos), draws), 2)
    whole = Allocation(user, silo, np.ones(len(user), dtype=bool), 2, silos)
    own = user == 0
    # Weights from counts may divide by the canary's count: then it stays, with records that have no gradient.
    stays = exp.algo.unit_weighting.needs_counts
    absent = whole if stays else replace(whole, trains=~own)
    found = []
    for pull in (0.0, -PULL):
        slopes = np.where(own, SLOPE, pull)
        without = np.where(own, 0.0, pull)
        found.append(Canary((_world(exp, absent, without), _world(exp, whole, slopes)), user=0, silo=None))
    return found


def _among_real_sizes(exp: Experiment, unit: str, replaces: bool) -> Canary:
    """The canary in the smallest silo of the run's allocation, where one record weighs most."""
    _, allocation, _ = allocate(exp)
    silo = int(allocation.counts().sum(axis=1).argmin())
    here = np.flatnonzero(allocation.trains & (allocation.silo == silo))
    user = int(np.bincount(allocation.user[here]).argmax())
    rows = here[allocation.user[here] == user]
    if unit != "user":
        rows = rows[: exp.data.records_per_draw]
    own = np.isin(np.arange(len(allocation.user)), rows)
    slopes = (np.where(own, -SLOPE if replaces else 0.0, 0.0), np.where(own, SLOPE, 0.0))
    others = allocation.silo != silo
    worlds = tuple(_world(exp, allocation, slope, others) for slope in slopes)
    return Canary((worlds[0], worlds[1]), user, silo)


def _world(exp: Experiment, allocation: Allocation, slopes: np.ndarray, forget: np.ndarray | None = None) -> Experiment:
    """forget: (n,) bool, whose losses are curved so that a local step of the algorithm ends at their minimum."""
    # A single step has no earlier noise to forget.
    rate = getattr(exp.algo, "local_lr", None) if getattr(exp.algo, "local_steps", 1) > 1 else None
    curved = np.zeros(len(slopes)) if forget is None or rate is None else np.where(forget, 1 / rate, 0.0)
    labels = np.stack([slopes, curved], axis=1)
    data = (CanaryPairs if exp.data.records_per_draw == 2 else CanaryData)(labels=labels)
    allocator = Fixed(allocation.n_users, allocation.n_silos, known=allocation)
    return replace(exp, data=data, allocator=allocator, model=Linear(bias=False), engine=InProcess())
