"""Batches of noisy local steps that partition one silo's shuffled records.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, lines 5-10. Symbols: tau -> steps, gamma -> size, m -> records.

A pass shuffles the m records and cuts them into floor(m / gamma) batches of exactly gamma. It skips
the remainder. So the size of a batch is a public constant, and a record is in at most one batch of
a pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from fedpriv.models.l2_projection import L2Projection


def scaled_to(x: Tensor, norm: float) -> Tensor:
    """Records (m, ...), scaled down to L2 norm `norm` where their own is larger."""
    scaled: Tensor = L2Projection(norm)(x.flatten(1))
    return scaled.view_as(x)


def partition_batches(
    records: int, size: int, steps: int, *, order: np.random.Generator
) -> Iterator[np.ndarray]:
    """`steps` batches (size,) of positions in [0, records), with a new shuffle after every pass.

    Raises ValueError where there are too few records for a batch.
    """
    if not 0 < size <= records:
        raise ValueError(f"batches of {size} from {records} records")
    whole = records // size
    for step in range(steps):
        if step % whole == 0:
            shuffled = order.permutation(records)
        start = step % whole * size
        yield shuffled[start : start + size]
