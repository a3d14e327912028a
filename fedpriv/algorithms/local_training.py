"""The bridge from local training to contributions: train, bound, drop what is not finite, count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import Contributions, Local, Tally

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData
    from fedpriv.training import LocalSgd


def trained(
    local: Local,
    data: SiloData,
    positions: np.ndarray | None,
    unit_ids: np.ndarray,
    theta: np.ndarray,
    recipe: LocalSgd,
    round: int,
    tally: Tally,
) -> Iterator[Contributions]:
    """Train the users at `positions` of `data` (None: all), and yield their bounded updates as units `unit_ids`.

    A unit whose update holds NaN or infinity contributes nothing, so that it cannot destroy the sum; `tally.nonfinite`
    records it. Dropping it depends on this unit alone, so the sensitivity is unchanged.
    """
    import torch

    from fedpriv.training import train_users

    start = torch.from_numpy(theta).to(data.x.device, torch.float32)
    for block in train_users(local.model, start, data, positions, local.task, recipe, local.streams, round, local.name):
        vectors, norms = local.mechanism.bound(block.deltas)
        finite = norms.isfinite()
        if not bool(finite.all()):
            vectors, norms = vectors[finite], norms[finite]
        kept = finite.cpu().numpy()
        tally.units += len(kept)
        tally.nonfinite += int((~kept).sum())
        tally.norm_sum += float(norms.sum())
        tally.clipped += int((vectors.norm(dim=1) < norms * (1 - 1e-9)).sum())
        yield Contributions(unit_ids[block.positions[kept]], vectors)
