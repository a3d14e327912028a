"""Noisy local steps on a shuffled partition of one silo's records.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, lines 5-10. Symbols: tau -> steps, gamma -> batch_size, G -> clip, eta -> lr, sigma ->
the noise's standard deviation, m -> records.

A pass shuffles the m records and cuts them into floor(m / gamma) batches of exactly gamma; the
remainder sits the pass out. So the size of a batch is a public constant, and a record is in at most
one batch of a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedpriv.mechanisms.base import Mechanism
from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.clipped import ClippedGradients
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.training.record_steps import RecordSteps
from fedpriv.training.trainers.compile_layers import compile_layers
from fedpriv.util.streams import SystemGenerator
from fedpriv.util.work import Work


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
    mechanism: Mechanism,
    noise: np.random.Generator | SystemGenerator,
    order: np.random.Generator,
    dropout_seed: int,
    stats: ContributionStats | None = None,
) -> Work[np.ndarray]:
    """Training from `theta` (d,) float64, whose result is the final minus the starting parameters
    (d,) float64, but for the last step's noise: `-lr` times a fresh draw of it is the caller's to
    add, so that it can be told apart from what it hides.

    x: (m, ...), y: (m, ...) on the training device.
    mechanism: noises the sum of a batch's clipped gradients from `noise`, at each step but the
        last.
    order: shuffles the records. Gradients are computed in float32, everything that is noised is
        float64. The result is a deterministic function of the arguments and the states of both
        generators, which it leaves in any state, so it can be had once.

    tally: see `ClippedGradients.sum`; not private. Raises ValueError for batches that the records
    cannot fill.
    """
    if not 0 < recipe.batch_size <= len(x):
        raise ValueError(f"batches of {recipe.batch_size} from {len(x)} records")
    batches = partition_batches(len(x), recipe.batch_size, recipe.steps, order=order)
    links = compile_layers(gradients.model, tuple(x.shape[1:]))
    deviation = mechanism.simulated_deviation()
    known = links is not None and not any(link.draws for link in links)
    if (
        recipe.batch_size == 1
        and known
        and deviation is not None
        and not isinstance(noise, SystemGenerator)
    ):
        assert links is not None
        rows = np.concatenate(list(batches))
        own = noise if deviation else None
        of = links, gradients.task, gradients.clip, recipe.lr
        return RecordSteps(*of, theta, x, y, rows, own, deviation, stats or ContributionStats())
    return _BatchSteps(
        gradients, recipe, theta, x, y, mechanism, noise, batches, dropout_seed, stats
    )


@dataclass(frozen=True, eq=False)
class _BatchSteps(Work[np.ndarray]):
    """The same step by step, of batches of any size; whose gradients may be summed together with
    others'."""

    gradients: ClippedGradients
    recipe: NoisySgd
    theta: np.ndarray
    x: Tensor
    y: Tensor
    mechanism: Mechanism
    noise: np.random.Generator | SystemGenerator
    batches: Iterator[np.ndarray]
    dropout_seed: int
    stats: ContributionStats | None

    batch_key = None

    def run(self) -> np.ndarray:
        current = self.theta.astype(np.float64)
        recipe = self.recipe
        with self.gradients.seeded(self.x.device, self.dropout_seed):
            for step, rows in enumerate(self.batches, start=1):
                index = torch.from_numpy(rows).to(self.x.device)
                start = torch.from_numpy(current).to(self.x.device, torch.float32)
                total = (
                    self.gradients.sum(start, self.x[index], self.y[index], stats=self.stats)
                    .cpu()
                    .numpy()
                )
                drawn: np.ndarray | float = 0.0
                if step < recipe.steps:
                    total, drawn = self.mechanism.noised(
                        total, self.noise, divisor=recipe.batch_size
                    )
                current -= recipe.lr * total / recipe.batch_size
                current -= recipe.lr * drawn
        change: np.ndarray = current - self.theta
        return change

    @classmethod
    def run_batch(cls, works: Sequence[_BatchSteps]) -> list[np.ndarray]:
        return [work.run() for work in works]


def scaled_to(x: Tensor, norm: float) -> Tensor:
    """Records (m, ...) scaled down to L2 norm `norm` where theirs is larger."""
    scaled: Tensor = L2Projection(norm)(x.flatten(1))
    return scaled.view_as(x)


def partition_batches(
    records: int, size: int, steps: int, *, order: np.random.Generator
) -> Iterator[np.ndarray]:
    """`steps` batches (size,) of positions in [0, records): a new shuffle whenever all whole
    batches are used up."""
    whole = records // size
    for step in range(steps):
        if step % whole == 0:
            shuffled = order.permutation(records)
        start = step % whole * size
        yield shuffled[start : start + size]
