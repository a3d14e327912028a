"""Noisy steps of one silo along sums of clipped gradients: the only loop of local training that
adds noise.

Noise that protects somebody is added in Python, and so is noise that an audit records. Simulations
of compiled networks take the same steps in C++, with the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from fedpriv.mechanisms.base import TrainingNoise
from fedpriv.mechanisms.discrete_sampling import Generator
from fedpriv.training.clipped import NO_KEYS, WORTH_THREADS, ClippedGradients
from fedpriv.training.contributions import ContributionStats
from fedpriv.training.per_record import finite_norms
from fedpriv.training.trainers.compiled.descent import Descent, descend
from fedpriv.training.trainers.compiled.problem import Program, in_threads
from fedpriv.util.work import Work

Trained = tuple[np.ndarray, ContributionStats]
NOISE_AT_ONCE = 2**15
"""Numbers that are drawn at once: they stay in the processor's cache for all runs."""


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisySteps(Work[Trained]):
    """Steps from `theta`. Each moves the parameters w by -rate * (S + pull * (w - anchor)), where S
    is the noised sum of a batch's clipped gradients. The result is the final minus the starting
    parameters, (d,) float64, and the statistics of the last step, which are part of `stats` too.

    Gradients are computed in `dtype`; all numbers that are noised are float64. The result is a
    deterministic function of the arguments and of the generator's state. Runs whose generators are
    in the same state draw their noise once in C++: other rates and bounds of the same seed cost
    little more than their gradients.

    theta: (d,) float64.
    x, y: (m, ...), on the training device; (m, group, ...) where gradients are those of groups.
    batches: for each step, which rows of x it takes.
    batch_size: of a batch, about.
    rates: (steps,).
    noise: of a sum of clipped gradients.
    noise_rng: what noise is drawn from, its own.
    noised: number of steps with noise, which are the first ones.
    keys: (m,) uint64, from which rows draw their dropout; see `ClippedGradients.sum`.
    pull, anchor: of the term that no record changes; anchor is (d,), or one number for all.
    stats: see `ClippedGradients.sum`; not private.
    """

    gradients: ClippedGradients
    theta: np.ndarray
    x: Tensor
    y: Tensor
    batches: Iterator[np.ndarray]
    batch_size: float
    rates: np.ndarray
    noise: TrainingNoise
    noise_rng: Generator
    noised: int
    keys: np.ndarray
    stats: ContributionStats
    pull: float = 0.0
    anchor: np.ndarray | float = 0.0
    dtype: torch.dtype = torch.float32

    @cached_property
    def program(self) -> Program | None:
        """What takes all steps in C++, with seeded noise alone; None: steps are those of Python."""
        compiled = self.gradients.compiled
        if compiled is None or not self.gradients.in_cpp(self.x, self.dtype):
            return None
        seeded = isinstance(self.noise_rng, np.random.Generator)
        # The sum of a large batch is worth several threads.
        small = self.batch_size * len(self.theta) < WORTH_THREADS or torch.get_num_threads() == 1
        return compiled.program if seeded and small else None

    @cached_property
    def batch_key(self) -> Hashable:
        """Equal for equal networks."""
        if self.program is None:
            return None
        network = self.program.network
        return bytes(network.layers), network.shape, network.masks, self.program.loss

    def run(self) -> Trained:
        if self.program is not None:
            return self.run_batch([self])[0]
        current, device = self.theta.astype(np.float64), self.x.device
        before = replace(self.stats)
        for step, rows in enumerate(self.batches):
            index = torch.from_numpy(rows).to(device)
            before = replace(self.stats)
            start = torch.from_numpy(current).to(device, self.dtype)
            keys = self.keys[rows] if self.gradients.drops else NO_KEYS
            own = self.x[index], self.y[index]
            found = self.gradients.sum(start, *own, keys=keys, step=step, stats=self.stats)
            total = found.cpu().numpy()
            if step < self.noised:
                total = self.noise.add(total, self.noise_rng)
            if self.pull:
                total = total + self.pull * (current - self.anchor)
            current -= self.rates[step] * total
        return current - self.theta, self.stats - before

    @classmethod
    def run_batch(cls, works: Sequence[NoisySteps]) -> list[Trained]:
        """Of works with a program. Those with other noise may run in other threads."""
        alike: dict[Hashable, list[NoisySteps]] = {}
        for work in works:
            assert isinstance(work.noise_rng, np.random.Generator)
            drawn = repr(work.noise_rng.bit_generator.state)
            alike.setdefault((drawn, len(work.rates), work.noised), []).append(work)
        groups = [*alike.values()]
        found = in_threads(_descend, groups, min(torch.get_num_threads(), len(groups)))
        results = {work: one for own, ones in zip(groups, found) for work, one in zip(own, ones)}
        return [results[work] for work in works]


def _descend(works: Sequence[NoisySteps]) -> list[Trained]:
    """The results of works with equal networks, numbers of steps and states of their generators."""
    first = works[0]
    program, steps, size = first.program, len(first.rates), len(first.theta)
    assert program is not None
    noisy = first.noised if any(work.noise.deviation for work in works) else 0
    runs = [
        Descent(
            program,
            work.theta,
            work.x,
            work.y,
            work.keys,
            work.rates,
            work.gradients.clip,
            work.noise.deviation,
            work.pull,
            work.anchor,
        )
        for work in works
    ]
    before = [replace(work.stats) for work in works]
    at_once = max(1, NOISE_AT_ONCE // size)
    for start in range(0, steps, at_once):
        places = range(start, min(start + at_once, steps))
        count = max(0, min(places.stop, noisy) - start)
        noise = TrainingNoise(1.0).add(np.zeros(count * size), first.noise_rng)
        names = first.gradients.dropout.names(places, program.network.masks)
        batches = [[*islice(work.batches, len(places))] for work in works]
        found = descend(runs, batches, noise.reshape(count, size), names)
        for place, (work, own) in enumerate(zip(works, batches)):
            norms = torch.from_numpy(found[place])
            last = len(norms) - len(own[-1])
            finite_norms(norms[:last], work.gradients.clip, work.stats)
            before[place] = replace(work.stats)
            finite_norms(norms[last:], work.gradients.clip, work.stats)
    return [
        (run.parameters - work.theta, work.stats - past)
        for run, work, past in zip(runs, works, before)
    ]
