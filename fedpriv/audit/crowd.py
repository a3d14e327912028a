"""A world with many canaries at once, each in a direction of its own, among ordinary units.

Data and loss are those of `fedpriv.audit.canary`; but every canary has its own features, the
columns of a random orthonormal frame, so that their contributions do not disturb each other. Each
direction is uniform on the sphere. The ordinary units have random directions and slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.audit.canary import Canaries
from fedpriv.audit.worlds import PULL, SLOPE
from fedpriv.data.allocation import Allocation
from fedpriv.errors import require
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment

ORDINARY = 20
"""Users beside the canaries where the run's own are not needed."""
SPARE = 4
"""Dimensions of the model beyond one for each canary."""
MOST_NUMBERS = 2**26
"""Features of all records together: a quarter of a gigabyte."""
FEWEST = 10
"""Canaries without which nothing can be proven."""


@dataclass(frozen=True)
class Crowd:
    """Canaries with what each contributes along, directions (k, d)."""

    canaries: Canaries
    directions: np.ndarray

    @property
    def holders(self) -> np.ndarray:
        """(k, n_silos) bool: whether a canary has records in a silo."""
        owner = self.canaries.owner
        allocation = self.canaries.allocation
        table = np.zeros((len(self.canaries), allocation.n_silos), dtype=bool)
        table[owner[owner >= 0], allocation.silo[owner >= 0]] = True
        return table


def crowd(exp: Experiment, unit: str, adjacency: str, *, wanted: int, colluding: int) -> Crowd:
    """`wanted` canaries, or as many as the run's records allow where certificates depend on how
    many there are.

    Where neighbours replace a unit, a coin chooses between two opposite canaries. Raises
    ConfigError where the data have no unit that could be a canary.
    """
    if exp.algo.queries_need_allocation:
        _, allocation, _ = allocate(exp)
        owner = _chosen(exp, allocation, unit, wanted=wanted, colluding=colluding)
        leaves = False
    else:
        silos = exp.allocator.n_silos
        draws = exp.data.records_per_draw
        user = np.repeat(np.arange(wanted + ORDINARY), silos * draws)
        silo = np.tile(np.repeat(np.arange(silos), draws), wanted + ORDINARY)
        allocation = Allocation(
            user, silo, np.ones(len(user), dtype=bool), wanted + ORDINARY, silos
        )
        owner = np.where(user < wanted, user, -1)
        leaves = not exp.algo.contributors.weighting.needs_counts
    count = int(owner.max()) + 1
    own = owner >= 0
    rng = exp.streams.generator("one-run audit: directions")
    directions = _frame(count, count + SPARE, rng)
    x = np.empty((len(owner), count + SPARE), dtype=np.float32)
    x[own] = directions[owner[own]]
    others = rng.standard_normal((int((~own).sum()), count + SPARE), dtype=np.float32)
    x[~own] = others / np.linalg.norm(others, axis=1, keepdims=True)
    pulls = rng.uniform(-PULL, PULL, len(owner))
    # Training descends, so a negative slope contributes along the direction itself.
    slopes = (
        np.where(own, face, pulls) for face in (SLOPE if adjacency == REPLACE else 0.0, -SLOPE)
    )
    absent, present = (np.stack([slope, np.zeros(len(owner))], axis=1) for slope in slopes)
    users = np.zeros(count, dtype=np.int64)
    users[owner[own]] = allocation.user[own]
    canaries = Canaries(exp, allocation, x, absent, present, owner, users, silo=None, leaves=leaves)
    return Crowd(canaries, directions)


def _frame(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """(count, size): orthonormal rows, each uniform on the sphere (the signs make QR's factor
    Haar-distributed)."""
    q, r = np.linalg.qr(rng.standard_normal((size, count)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T)


def _chosen(
    exp: Experiment, allocation: Allocation, unit: str, *, wanted: int, colluding: int
) -> np.ndarray:
    """Which canary each record of the run's allocation belongs to, (n,), -1 for none."""
    draws = exp.data.records_per_draw
    trains = allocation.trains
    # What a curious silo knows of its own message hides nothing from it: canaries live in the
    # others.
    open_to_all = allocation.silo < max(1, allocation.n_silos - colluding)
    rows = np.flatnonzero(trains & open_to_all)
    if unit == "user":
        units = [
            np.flatnonzero(trains & (allocation.user == user))
            for user in np.unique(allocation.user[rows])
        ]
    else:
        rows = rows[np.lexsort((allocation.user[rows], allocation.silo[rows]))]
        units = [rows[start : start + draws] for start in range(0, len(rows) - draws + 1, draws)]
    most = min(len(units), max(1, MOST_NUMBERS // len(trains) - SPARE))
    require(
        most >= FEWEST,
        "--one-run",
        unit,
        f"a unit of which the run has at least {FEWEST}; here are {most}",
    )
    rng = exp.streams.generator("one-run audit: canaries")
    canary = np.full(len(trains), -1)
    for place, choice in enumerate(rng.permutation(len(units))[: min(wanted, most)]):
        canary[units[choice]] = place
    return canary
