"""A world with many canaries at once, each in a direction of its own, among ordinary units.

Data and loss are those of `fedpriv.audit.canary`; but every canary has its own features, the columns of a random
orthonormal frame, so that their contributions do not disturb each other. Each direction is uniform on the sphere. The
ordinary units have random directions and slopes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.audit.canary import PULL, SLOPE, CanaryLoss, Fixed
from fedpriv.config import Experiment
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import require
from fedpriv.models.linear import Linear
from fedpriv.simulation import allocate
from fedpriv.streams import Streams
from fedpriv.tasks import Task

ORDINARY = 20
"""Users beside the canaries where the run's own are not needed."""
SPARE = 4
"""Dimensions of the model beyond one for each canary."""
MOST_NUMBERS = 2**26
"""Features of all records together: a quarter of a gigabyte."""
FEWEST = 10
"""Canaries without which nothing can be proven."""


@dataclass(frozen=True)
class CrowdData(DataSet):
    """Records x (n, d) with labels y (n, 2), as in `CanaryLoss`. draws: `DataSet.records_per_draw`."""

    x: np.ndarray = field(default_factory=lambda: np.zeros((1, 1), dtype=np.float32), compare=False)
    y: np.ndarray = field(default_factory=lambda: np.zeros((1, 2), dtype=np.float32), compare=False)
    draws: int = 1
    outputs = 1

    def __post_init__(self) -> None:
        # A class's constants elsewhere; here they come with the records.
        object.__setattr__(self, "shape", self.x.shape[1:])
        object.__setattr__(self, "records_per_draw", self.draws)

    @property
    def task(self) -> Task:
        return CanaryLoss()

    def load(self, streams: Streams) -> Corpus:
        return Corpus(Records(self.x, self.y), Records(self.x[:1], self.y[:1]))


@dataclass(frozen=True)
class Crowd:
    """m canaries in an experiment made like the run `exp`.

    allocation: of everybody's n records. canary: (n,) int64, which canary a record belongs to, -1 for ordinary ones.
    directions: (m, d), what canaries contribute along. x: (n, d) float32. slopes: (n,) of ordinary records, 0 for
    canaries'. replaces: a coin chooses between two opposite faces instead of presence and absence. stays: a canary that
    is absent leaves records without a gradient behind, because numbers of records are public.
    """

    exp: Experiment
    allocation: Allocation
    canary: np.ndarray
    directions: np.ndarray
    x: np.ndarray
    slopes: np.ndarray
    replaces: bool
    stays: bool

    @property
    def users(self) -> np.ndarray:
        """Owner of each canary, (m,)."""
        owner = np.zeros(len(self.directions), dtype=np.int64)
        own = self.canary >= 0
        owner[self.canary[own]] = self.allocation.user[own]
        return owner

    @property
    def holders(self) -> np.ndarray:
        """(m, n_silos) bool: whether a canary has records in a silo."""
        table = np.zeros((len(self.directions), self.allocation.n_silos), dtype=bool)
        own = self.canary >= 0
        table[self.canary[own], self.allocation.silo[own]] = True
        return table

    def world(self, coins: np.ndarray | None) -> Experiment:
        """The experiment with the canaries whose coin (m,) is True, the others absent or with their other face; None:
        no canary contributes."""
        own = self.canary >= 0
        turned = np.zeros(len(self.directions)) if coins is None else np.where(coins, 1.0, -float(self.replaces))
        # Training descends, so a negative slope contributes along the direction itself.
        slopes = self.slopes - SLOPE * own * turned[self.canary]
        kept = np.ones(len(own), dtype=bool) if self.stays else ~own | (slopes != 0)
        where = self.allocation
        part = replace(where, user=where.user[kept], silo=where.silo[kept], trains=where.trains[kept])
        labels = np.stack([slopes[kept], np.zeros(kept.sum())], axis=1).astype(np.float32)
        data = CrowdData(x=self.x[kept], y=labels, draws=self.exp.data.records_per_draw)
        allocator = Fixed(part.n_users, part.n_silos, known=part)
        return replace(self.exp, data=data, allocator=allocator, model=Linear(bias=False), engine=InProcess())


def crowd(exp: Experiment, unit: str, adjacency: str, *, wanted: int, colluding: int) -> Crowd:
    """`wanted` canaries, or as many as the run's records allow where certificates depend on how many there are.

    Raises ConfigError where the data have no unit that could be a canary.
    """
    if exp.algo.queries_need_allocation:
        _, allocation, _ = allocate(exp)
        canary = _chosen(exp, allocation, unit, wanted=wanted, colluding=colluding)
        stays = True
    else:
        silos, draws = exp.allocator.n_silos, exp.data.records_per_draw
        user = np.repeat(np.arange(wanted + ORDINARY), silos * draws)
        silo = np.tile(np.repeat(np.arange(silos), draws), wanted + ORDINARY)
        allocation = Allocation(user, silo, np.ones(len(user), dtype=bool), wanted + ORDINARY, silos)
        canary = np.where(user < wanted, user, -1)
        stays = exp.algo.unit_weighting.needs_counts
    count = int(canary.max()) + 1
    rng = exp.streams.generator("one-run audit: directions")
    directions = _frame(count, count + SPARE, rng)
    own = canary >= 0
    x = np.empty((len(canary), count + SPARE), dtype=np.float32)
    x[own] = directions[canary[own]]
    others = rng.standard_normal((int((~own).sum()), count + SPARE), dtype=np.float32)
    x[~own] = others / np.linalg.norm(others, axis=1, keepdims=True)
    slopes = np.where(own, 0.0, rng.uniform(-PULL, PULL, len(canary)))
    return Crowd(exp, allocation, canary, directions, x, slopes, adjacency == REPLACE, stays)


def _frame(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """(count, size): orthonormal rows, each uniform on the sphere (the signs make QR's factor Haar-distributed)."""
    q, r = np.linalg.qr(rng.standard_normal((size, count)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T)


def _chosen(exp: Experiment, allocation: Allocation, unit: str, *, wanted: int, colluding: int) -> np.ndarray:
    """Which canary each record of the run's allocation belongs to, (n,), -1 for none."""
    draws, trains = exp.data.records_per_draw, allocation.trains
    # What a curious silo knows of its own message hides nothing from it: canaries live in the others.
    open_to_all = allocation.silo < max(1, allocation.n_silos - colluding)
    rows = np.flatnonzero(trains & open_to_all)
    if unit == "user":
        units = [np.flatnonzero(trains & (allocation.user == user)) for user in np.unique(allocation.user[rows])]
    else:
        rows = rows[np.lexsort((allocation.user[rows], allocation.silo[rows]))]
        units = [rows[start : start + draws] for start in range(0, len(rows) - draws + 1, draws)]
    most = min(len(units), max(1, MOST_NUMBERS // len(trains) - SPARE))
    require(most >= FEWEST, "--one-run", unit, f"a unit of which the run has at least {FEWEST}; here are {most}")
    rng = exp.streams.generator("one-run audit: canaries")
    canary = np.full(len(trains), -1)
    for place, choice in enumerate(rng.permutation(len(units))[: min(wanted, most)]):
        canary[units[choice]] = place
    return canary
