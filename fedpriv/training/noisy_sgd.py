"""Noisy local steps on a shuffled partition of one silo's records.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, lines 5-10. Symbols: tau -> steps, gamma -> batch_size, G -> clip, eta -> lr, sigma ->
the noise's standard deviation, m -> records.

A pass shuffles the m records and cuts them into floor(m / gamma) batches of exactly gamma. It skips
the remainder. So the size of a batch is a public constant, and a record is in at most one batch of
a pass.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.clipped import WORTH_THREADS, ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.modes import seeded_dropout
from fedpriv.training.per_record import finite_norms
from fedpriv.training.trainers.compiled.clipped_sum import PIECE
from fedpriv.training.trainers.compiled.descent import Descent, descend
from fedpriv.training.trainers.compiled.problem import Program
from fedpriv.util.streams import SystemGenerator
from fedpriv.util.work import Work

Trained = tuple[np.ndarray, ContributionStats]


@dataclass(frozen=True)
class NoisySgd:
    """`steps` steps of rate `lr`, each on a batch of `batch_size` records."""

    steps: int
    batch_size: int
    lr: float


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyTraining(Work[Trained]):
    """Training from `theta` (d,) float64. The result is the final minus the starting parameters,
    (d,) float64, without the last step's noise: the caller adds `-lr` times a fresh draw of it, to
    keep it apart from what it hides. Also the statistics of the last step, which are part of
    `stats` too.

    Gradients are computed in float32; all numbers that are noised are float64. The result is a
    deterministic function of the arguments and of the states of both generators. Small batches of
    compiled networks take all steps in C++, and runs whose generators are in the same state draw
    their noise once: other steps and bounds of the same seed cost little more than their gradients.

    x: (m, ...), y: (m, ...) on the training device.
    noise: of the mean of a batch's clipped gradients, at each step but the last.
    noise_rng: what `noise` is drawn from, its own.
    order: shuffles the records.
    stats: see `ClippedGradients.sum`; not private.

    Raises ValueError where there are too few records for a batch.
    """

    gradients: ClippedGradients
    recipe: NoisySgd
    theta: np.ndarray
    x: Tensor
    y: Tensor
    noise: TrainingNoise
    noise_rng: Generator
    order: np.random.Generator
    dropout_seed: int
    stats: ContributionStats

    def __post_init__(self) -> None:
        if not 0 < self.recipe.batch_size <= len(self.x):
            raise ValueError(f"batches of {self.recipe.batch_size} from {len(self.x)} records")

    @cached_property
    def program(self) -> Program | None:
        """What takes all steps in C++, with seeded noise alone; None: steps are those of Python."""
        compiled, size = self.gradients.compiled, self.recipe.batch_size
        small = size <= PIECE and size * len(self.theta) < WORTH_THREADS
        here = self.x.device.type == "cpu" and self.x.dtype == self.gradients.dtype
        seeded = not isinstance(self.noise_rng, SystemGenerator)
        if compiled is None or compiled.program.network.masks or not (small and here and seeded):
            return None
        return compiled.program

    @cached_property
    def batch_key(self) -> Hashable:
        """Equal for networks and noise of the same numbers."""
        if self.program is None or isinstance(self.noise_rng, SystemGenerator):
            return None
        network = self.program.network
        drawn = repr(self.noise_rng.bit_generator.state)
        recipe = self.recipe.steps, self.recipe.batch_size
        return drawn, recipe, bytes(network.layers), network.shape, self.program.loss

    def run(self) -> Trained:
        if self.program is not None:
            return self.run_batch([self])[0]
        current, size, lr = self.theta.astype(np.float64), self.recipe.batch_size, self.recipe.lr
        with seeded_dropout(self.x.device, self.dropout_seed):
            for step, rows in enumerate(self._batches, start=1):
                index = torch.from_numpy(rows).to(self.x.device)
                before = replace(self.stats)
                start = torch.from_numpy(current).to(self.x.device, torch.float32)
                found = self.gradients.sum(start, self.x[index], self.y[index], stats=self.stats)
                total = found.cpu().numpy()
                drawn: np.ndarray | float = 0.0
                if step < self.recipe.steps:
                    total, drawn = self.noise.add(total, self.noise_rng, divisor=size)
                current -= lr * total / size
                current -= lr * drawn
        return current - self.theta, self.stats - before

    @property
    def _batches(self) -> Iterator[np.ndarray]:
        size, steps = self.recipe.batch_size, self.recipe.steps
        return partition_batches(len(self.x), size, steps, order=self.order)

    @classmethod
    def run_batch(cls, works: Sequence[NoisyTraining]) -> list[Trained]:
        """Of works with a program."""
        runs = [
            Descent(
                work.theta,
                work.x,
                work.y,
                np.stack(list(work._batches)),
                work.gradients.clip,
                work.recipe.lr,
                work.noise.deviation,
            )
            for work in works
        ]
        first = works[0]
        assert first.program is not None
        found = []
        for work, (current, norms) in zip(works, descend(first.program, runs, first._drawn)):
            finite_norms(norms[:-1].flatten(), work.gradients.clip, work.stats)
            before = replace(work.stats)
            finite_norms(norms[-1], work.gradients.clip, work.stats)
            found.append((current - work.theta, work.stats - before))
        return found

    def _drawn(self, count: int) -> np.ndarray:
        noise = TrainingNoise(1.0).add(np.zeros(count), self.noise_rng)[1]
        return np.asarray(noise)


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
