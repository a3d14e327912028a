"""Noisy local steps on a shuffled partition of one silo's records.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, lines 5-10. Symbols: tau -> steps, gamma -> batch_size, G -> clip, eta -> lr, sigma ->
the noise's standard deviation, m -> records.

A pass shuffles the m records and cuts them into floor(m / gamma) batches of exactly gamma. It skips
the remainder. So the size of a batch is a public constant, and a record is in at most one batch of
a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.modes import seeded_dropout


@dataclass(frozen=True)
class NoisySgd:
    """`steps` steps of rate `lr`, each on a batch of `batch_size` records."""

    steps: int
    batch_size: int
    lr: float


def noisy_sgd(
    gradients: ClippedGradients,
    recipe: NoisySgd,
    *,
    theta: np.ndarray,
    x: Tensor,
    y: Tensor,
    noise: TrainingNoise,
    noise_rng: Generator,
    order: np.random.Generator,
    dropout_seed: int,
    stats: ContributionStats,
) -> tuple[np.ndarray, ContributionStats]:
    """Train from `theta` (d,) float64; the final minus the starting parameters, (d,) float64,
    without the last step's noise: the caller adds `-lr` times a fresh draw of it, to keep it apart
    from what it hides. Also the statistics of the last step, which are part of `stats` too.

    Gradients are computed in float32; all numbers that are noised are float64. The result is a
    deterministic function of the arguments and of the states of both generators.

    x: (m, ...), y: (m, ...) on the training device.
    noise: of the mean of a batch's clipped gradients, at each step but the last.
    noise_rng: what `noise` is drawn from.
    order: shuffles the records.
    stats: see `ClippedGradients.sum`; not private.

    Raises ValueError where there are too few records for a batch.
    """
    if not 0 < recipe.batch_size <= len(x):
        raise ValueError(f"batches of {recipe.batch_size} from {len(x)} records")
    batches = partition_batches(len(x), recipe.batch_size, recipe.steps, order=order)
    current = theta.astype(np.float64)
    with seeded_dropout(x.device, dropout_seed):
        for step, rows in enumerate(batches, start=1):
            index = torch.from_numpy(rows).to(x.device)
            before = replace(stats)
            start = torch.from_numpy(current).to(x.device, torch.float32)
            total = gradients.sum(start, x[index], y[index], stats=stats).cpu().numpy()
            drawn: np.ndarray | float = 0.0
            if step < recipe.steps:
                total, drawn = noise.add(total, noise_rng, divisor=recipe.batch_size)
            current -= recipe.lr * total / recipe.batch_size
            current -= recipe.lr * drawn
    change: np.ndarray = current - theta
    return change, stats - before


def scaled_to(x: Tensor, norm: float) -> Tensor:
    """Records (m, ...), scaled down to L2 norm `norm` where their own is larger."""
    scaled: Tensor = L2Projection(norm)(x.flatten(1))
    return scaled.view_as(x)


def partition_batches(
    records: int, size: int, steps: int, *, order: np.random.Generator
) -> Iterator[np.ndarray]:
    """`steps` batches (size,) of positions in [0, records), with a new shuffle after every pass."""
    whole = records // size
    for step in range(steps):
        if step % whole == 0:
            shuffled = order.permutation(records)
        start = step % whole * size
        yield shuffled[start : start + size]
