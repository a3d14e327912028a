"""The bound on contributions, which the framework applies before a message is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedpriv.rounds.local_job import Step, changed
from fedpriv.rounds.query import Query
from fedpriv.training.contributions import Contributions, ContributionStats

if TYPE_CHECKING:
    import torch


def bounded(
    steps: Iterator[Step],
    query: Query,
    stats: ContributionStats,
    bounds: np.ndarray | None = None,
) -> Iterator[Step]:
    """Clip contributions to the mechanism's bound, in float64. If the query does not enforce the
    bound, vectors stay as they are. Users outside of the query's sample are left out.

    bounds: (n_units,) each unit's bound, relative to that of the mechanism; None: 1 for all.

    A unit whose contribution contains NaN or infinity contributes nothing, so that it cannot
    destroy the sum; `stats.nonfinite` counts it. Dropping it depends on this unit alone, so the
    sensitivity does not change. Raises ValueError for a unit that contributes twice, since it would
    move the sum by twice the bound, for one that does not exist, and for vectors of another length.
    """
    known: set[int] = set()
    size = query.size - query.mechanism.marks if query.asked.enforced else query.size

    def fitting(block: Contributions) -> Contributions:
        shape, k = tuple(block.vectors.shape), len(block.units)
        if shape != (k, size):  # numpy would spread a short vector over all coordinates
            allowed = f"one vector of {size} coordinates for each of {k} units"
            raise ValueError(f"query {query.name}: vectors of shape {shape}; allowed: {allowed}")
        if k and block.units.min() < 0:  # it would have the weight of another unit
            raise ValueError(f"query {query.name}: unit {block.units.min()} does not exist")
        return block

    def bound(block: Contributions) -> Contributions | None:
        fitting(block)
        count = len(known)
        known.update(block.units.tolist())
        if len(known) < count + len(block.vectors):
            raise ValueError(f"query {query.name}: a unit contributes twice at one silo")
        found = bounded_rows(block, query, bounds)
        if not len(found.units):
            return None
        stats.units += len(found.units)
        stats.nonfinite += int((~found.finite).sum())
        stats.norm_sum += float(found.norms[found.finite].sum())
        stats.clipped += int(found.clipped.sum())
        if found.finite.all():
            return Contributions(found.units, found.vectors)
        return Contributions(found.units[found.finite], found.vectors[found.finite])

    return changed(steps, bound if query.asked.enforced else fitting)


class BoundedRows(NamedTuple):
    """The rows of a block that take part.

    rows: (m,) places in the block.
    units: (m,) int64.
    vectors: (m, size) float64, each within its bound.
    norms: (m,) before bounding.
    finite: (m,) bool: whether the row is added.
    clipped: (m,) bool: whether it is, and was longer than its bound.
    """

    rows: np.ndarray
    units: np.ndarray
    vectors: torch.Tensor
    norms: np.ndarray
    finite: np.ndarray
    clipped: np.ndarray


def bounded_rows(block: Contributions, query: Query, bounds: np.ndarray | None) -> BoundedRows:
    """The block's vectors within their bounds.

    bounds: (n_units,) as in `bounded`. A bound of 0 is that of a user who takes no part.
    """
    units, vectors = block.units, block.vectors
    here = np.ones(len(units), dtype=bool)
    if query.sampled is not None:
        here &= query.sampled[units]
    if bounds is not None:
        here &= bounds[units] > 0
    if not here.all():
        units, vectors = units[here], vectors[here]
    limit: float | np.ndarray = query.mechanism.limit
    if bounds is None:
        vectors, norms = query.mechanism.bound(vectors)
    else:
        import torch

        limit = limit * bounds[units]
        scale = torch.from_numpy(bounds[units]).to(vectors.device)
        vectors, norms = query.mechanism.bound(vectors.double() / scale[:, None])
        vectors, norms = vectors.mul_(scale[:, None]), norms * scale
    lengths = norms.cpu().numpy()  # one copy: each question would stall the device
    finite = np.isfinite(lengths)
    clipped = finite & (lengths > limit)
    return BoundedRows(np.flatnonzero(here), units, vectors, lengths, finite, clipped)
