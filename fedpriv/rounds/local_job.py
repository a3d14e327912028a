"""What one silo computes for a query."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from inspect import GEN_CREATED, getgeneratorstate
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np

from fedpriv.rounds.query import PendingState
from fedpriv.training.contributions import Contributions, ContributionStats
from fedpriv.training.description import Training
from fedpriv.util.work import Work, run_work

Step = Work[Any] | Contributions
"""A step of a silo's computation."""
Computation = Generator[Step, Any, None]
"""A computation of contributions. It may also yield work, and is then sent the work's result."""


class Described(NamedTuple):
    """What some steps compute.

    steps: the steps.
    training: whose contributions they are.
    """

    steps: Iterator[Step]
    training: Training


@dataclass(eq=False)
class LocalJob:
    """A silo's contributions to a query, and its noise share.

    An algorithm creates the job, usually by `Silo.train`, or from a generator of its own. The
    framework adds the bounds and the noise. The aggregation reads `contributions`, once; they are
    computed while they are read.

    >>> import torch
    >>> def steps():
    ...     yield Contributions(np.array([3]), torch.tensor([[0.5, 1.0]]))
    >>> [block] = LocalJob(steps()).contributions
    >>> block.units.tolist()
    [3]

    steps: yields blocks of contributions. Work that it yields can run in one batch with that of
        other silos.
    noise: noise share (size,) float64. An algorithm gives it if it draws the noise itself
        (`Query.enforced` is False); empty: the framework draws it, or there is none.
    secret: seed of the removable noise (`RemovableNoise`); None: no noise is removable.
    pending: the silo's next state if the query ends with a sum, filled while the contributions are
        computed. A silo then computes them even if no message needs them. None: the state stays.
    stats: diagnostics of the contributions, filled while they are computed. The framework counts
        those that it bounds, the algorithm the others (`Query.enforced` is False). A round without
        a counted or without a finite contribution is marked: it learned nothing.
    row: turns the weighted sum of the contributions (size,) into what the message contains before
        the noise. The framework sets it where messages repeat the sums of earlier rounds. None:
        the message contains the sum itself.
    described: the training that `steps` compute, and nothing else; None: only `steps` know.
    """

    steps: Iterator[Step]
    noise: np.ndarray = field(default_factory=lambda: np.zeros(0))
    secret: bytes | None = None
    pending: PendingState | None = None
    stats: ContributionStats = field(default_factory=ContributionStats)
    row: Callable[[np.ndarray], np.ndarray] | None = None
    described: Described | None = None

    @property
    def training(self) -> Training | None:
        """The training that makes the contributions; None where its result is changed or has been
        asked for, or where an algorithm computes them."""
        known = self.described
        if known is None or known.steps is not self.steps or not untouched(known.steps):
            return None
        return known.training

    @property
    def contributions(self) -> Iterator[Contributions]:
        """The blocks of contributions. Their work runs here unless `batched` has run it."""
        result = None
        while (step := advance(self.steps, result)) is not None:
            result = None
            if isinstance(step, Work):
                result = run_work(step)
            else:
                yield step

    def batched(self) -> Generator[Work[Any], Any, LocalJob]:
        """Return the job after its first works, which the engine may run in one batch with those
        of other silos.

        Pass the result straight to the function that makes the message. A local variable would
        keep the job and its noise in memory until the query ends, once for every silo.
        """
        step = advance(self.steps)
        while isinstance(step, Work) and step.batch_key is not None:
            step = advance(self.steps, (yield step))
        self.steps = _continued(step, self.steps)
        return self

    def map(self, change: Callable[[Contributions], Contributions | None]) -> LocalJob:
        """The job with each block changed; None drops a block."""
        return replace(self, steps=changed(self.steps, change))


def untouched(steps: Iterator[Step]) -> bool:
    """Whether nobody has asked for a step of this generator yet."""
    return isinstance(steps, GeneratorType) and getgeneratorstate(steps) == GEN_CREATED


def advance(steps: Iterator[Step], result: Any = None) -> Step | None:
    """The next step, after work with this result; None at the end."""
    try:
        return next(steps) if result is None else steps.send(result)  # type: ignore[attr-defined]
    except StopIteration:
        return None


def changed(
    steps: Iterator[Step], change: Callable[[Contributions], Contributions | None]
) -> Computation:
    """The steps with each block changed; None drops a block. Work passes."""
    result = None
    while (step := advance(steps, result)) is not None:
        result = None
        if isinstance(step, Work):
            result = yield step
        elif (block := change(step)) is not None:
            yield block


def _continued(first: Step | None, steps: Iterator[Step]) -> Computation:
    """The steps that begin with `first`."""
    step = first
    while step is not None:
        step = advance(steps, (yield step))
