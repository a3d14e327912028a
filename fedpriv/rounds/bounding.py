"""The bound on contributions, which the framework applies before a message is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

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

    def fitting(block: Contributions) -> Contributions:
        shape, k = tuple(block.vectors.shape), len(block.units)
        if shape != (k, query.size):  # numpy would spread a short vector over all coordinates
            allowed = f"one vector of {query.size} coordinates for each of {k} units"
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
        if query.sampled is not None:
            block = _sampled(block, query.sampled)
            if not len(block.units):
                return None
        if bounds is not None and not bounds[block.units].all():
            block = _sampled(block, bounds > 0)  # a bound of 0 is that of a user who takes no part
        own = None if bounds is None else bounds[block.units]
        vectors, lengths = bounded_rows(block, query, own)
        finite = np.isfinite(lengths)
        units = block.units[finite]
        if not finite.all():
            vectors = vectors[finite]
        stats.units += len(lengths)
        stats.nonfinite += len(lengths) - len(units)
        limit = query.mechanism.clip if own is None else query.mechanism.clip * own[finite]
        stats.norm_sum += float(lengths[finite].sum())
        stats.clipped += int((lengths[finite] > limit).sum())
        return Contributions(units, vectors)

    return changed(steps, bound if query.enforced else fitting)


def bounded_rows(
    block: Contributions, query: Query, own: np.ndarray | None
) -> tuple[torch.Tensor, np.ndarray]:
    """The block's vectors (k, size) within their bounds, float64, and their norms (k,) before.

    own: (k,) each unit's bound, relative to that of the mechanism; None: 1 for all.
    """
    if own is None:
        vectors, norms = query.mechanism.bound(block.vectors)
        return vectors, norms.cpu().numpy()  # one copy: each question would stall the device
    import torch

    scale = torch.from_numpy(own).to(block.vectors.device)
    vectors, norms = query.mechanism.bound(block.vectors.double() / scale[:, None])
    return vectors.mul_(scale[:, None]), (norms * scale).cpu().numpy()


def _sampled(block: Contributions, sampled: np.ndarray) -> Contributions:
    """The contributions of sampled users."""
    here = sampled[block.units]
    return block if here.all() else Contributions(block.units[here], block.vectors[here])
