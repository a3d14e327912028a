"""Many canaries at once among ordinary units, each with its own direction.

Data and loss are those of `fedpriv.audit.canary`. The canaries' features are the columns of a
random orthonormal frame, so that their contributions do not disturb each other. Each direction is
uniform on the sphere. The ordinary units have random directions and slopes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.audit.canary import Canaries, independent_users
from fedpriv.audit.candidates import CANARY_SLOPE, OTHER_SLOPE
from fedpriv.data.allocate import Allocation
from fedpriv.errors import require
from fedpriv.runtime import allocate
from fedpriv.settings.experiment import Experiment

ORDINARY_USERS = 20
"""Users beside the canaries where the run's own users are not needed."""
SPARE_FEATURES = 4
"""Dimensions of the model beyond one for each canary."""
MAX_FEATURES = 2**26
"""Features of all records together: a quarter of a gigabyte."""
MIN_CANARIES = 10
"""Fewer canaries prove nothing."""


@dataclass(frozen=True, kw_only=True)
class OrthogonalCanaries(Canaries):
    """Canaries with orthogonal directions.

    directions: (k, d), the direction of each canary's contribution.
    """

    directions: np.ndarray

    @property
    def holders(self) -> np.ndarray:
        """(k, n_silos) bool: whether a canary has records in a silo."""
        table = np.zeros((len(self), self.allocation.n_silos), dtype=bool)
        own = self.owner >= 0
        table[self.owner[own], self.allocation.silo[own]] = True
        return table


def orthogonal_canaries(
    exp: Experiment, unit: str, adjacency: str, *, wanted: int, colluding: int
) -> OrthogonalCanaries:
    """`wanted` canaries, or fewer if certificates depend on how many records the run has, or if
    their features would not fit into memory.

    Where neighbours replace a unit, a coin chooses between two opposite canaries. Raises
    ConfigError if the data have too few units that can be canaries.
    """
    if exp.algo.contributors.needs_sizes:
        _, allocation, _ = allocate(exp)
        owner = _chosen(exp, allocation, unit, wanted=wanted, colluding=colluding)
        leaves = False
    else:
        each = exp.allocator.n_silos * exp.data.records_per_draw
        most = int((MAX_FEATURES / each) ** 0.5) - ORDINARY_USERS
        wanted = max(MIN_CANARIES, min(wanted, most))
        allocation = independent_users(exp, wanted + ORDINARY_USERS)
        owner = np.where(allocation.user < wanted, allocation.user, -1)
        leaves = not exp.algo.contributors.weighting.needs_counts
    count = int(owner.max()) + 1
    own = owner >= 0
    rng = exp.streams.generator("one-run audit: directions")
    directions = _frame(count, count + SPARE_FEATURES, rng)
    x = np.empty((len(owner), count + SPARE_FEATURES), dtype=np.float32)
    x[own] = directions[owner[own]]
    others = rng.standard_normal((int((~own).sum()), x.shape[1]), dtype=np.float32)
    x[~own] = others / np.linalg.norm(others, axis=1, keepdims=True)
    slopes = rng.uniform(-OTHER_SLOPE, OTHER_SLOPE, len(owner))
    # Training descends, so a negative slope contributes along the direction itself.
    absent, present = (
        np.stack([np.where(own, slope, slopes), np.zeros(len(owner))], axis=1)
        for slope in (CANARY_SLOPE if adjacency == REPLACE else 0.0, -CANARY_SLOPE)
    )
    users = np.zeros(count, dtype=np.int64)
    users[owner[own]] = allocation.user[own]
    return OrthogonalCanaries(
        *(exp, allocation, x, absent, present, owner, users),
        silo=None,
        leaves=leaves,
        directions=directions,
    )


def _frame(count: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """(count, size): orthonormal rows, each uniform on the sphere.

    The signs make the factor of the QR decomposition Haar-distributed.
    """
    q, r = np.linalg.qr(rng.standard_normal((size, count)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T)


def _chosen(
    exp: Experiment, allocation: Allocation, unit: str, *, wanted: int, colluding: int
) -> np.ndarray:
    """The canary that each record of the run's allocation belongs to, (n,); -1 for none."""
    draws = exp.data.records_per_draw
    trains = allocation.trains
    # A curious silo knows its own message, so canaries must be in the other silos.
    in_others = allocation.silo < max(1, allocation.n_silos - colluding)
    rows = np.flatnonzero(trains & in_others)
    if unit == "user":
        users = np.unique(allocation.user[rows])
        units = [np.flatnonzero(trains & (allocation.user == user)) for user in users]
    else:
        rows = rows[np.lexsort((allocation.user[rows], allocation.silo[rows]))]
        units = [rows[start : start + draws] for start in range(0, len(rows) - draws + 1, draws)]
    most = min(len(units), max(1, MAX_FEATURES // len(trains) - SPARE_FEATURES))
    allowed = f"a unit of which the run has at least {MIN_CANARIES}; this run has {most}"
    require(most >= MIN_CANARIES, "--one-run", unit, allowed)
    rng = exp.streams.generator("one-run audit: canaries")
    canary = np.full(len(trains), -1)
    for number, choice in enumerate(rng.permutation(len(units))[: min(wanted, most)]):
        canary[units[choice]] = number
    return canary
