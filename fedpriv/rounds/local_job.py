"""What one silo computes for a query."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.rounds.query import PendingState, Query
from fedpriv.training.contributions import Contributions, ContributionStats
from fedpriv.training.description import Training
from fedpriv.util.work import Work, run_work

if TYPE_CHECKING:
    from fedpriv.training.one_user_silos import OneUser, SharedTraining

Step = Work[Any] | Contributions
"""A step of a silo's computation."""
Computation = Generator[Step, Any, None]
"""A computation of contributions. It may also yield work, and is then sent the work's result."""


@dataclass(eq=False)
class OneRow:
    """One silo's contribution to a query, not yet computed.

    query: the query with its sample.
    shared: what its training shares with those of other silos.
    user: who trains; None: nobody.
    stats: diagnostics, filled with the contribution.
    bounds: (n_units,) each unit's bound, relative to that of the mechanism; None: 1 for all.
    draw: draws the silo's noise share, (size,) float64.
    spent: takes note of seconds of training.
    """

    query: Query
    shared: SharedTraining
    user: OneUser | None
    stats: ContributionStats
    bounds: np.ndarray | None
    draw: Callable[[], np.ndarray]
    spent: Callable[[float], None]

    @property
    def batch_key(self) -> Hashable:
        """Rows with equal keys can be computed in one matrix."""
        return id(self.shared), self.query.serial, id(self.query.sampled)

    @property
    def unit(self) -> int:
        """What its contribution is of."""
        assert self.user is not None
        return self.user.unit


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
        (`Asked.enforced` is False); empty: the framework draws it, or there is none.
    secret: seed of the removable noise (`RemovableNoise`); None: no noise is removable.
    pending: the silo's next state if the query ends with a sum, filled while the contributions are
        computed. A silo then computes them even if no message needs them. None: the state stays.
    stats: diagnostics of the contributions, filled while they are computed. The framework counts
        those that it bounds, the algorithm the others (`Asked.enforced` is False). A round without
        a counted or without a finite contribution is marked: it learned nothing.
    row: turns the weighted sum of the contributions (size,) into what the message contains before
        the noise. The framework sets it where messages repeat the sums of earlier rounds. None:
        the message contains the sum itself.
    training: the training that makes the contributions; None: only `steps` know.
    one_row: the only contribution and the noise share, where an aggregation may compute those of
        many silos together; None: `steps` and `noise` are all there is.
    """

    steps: Iterator[Step]
    noise: np.ndarray = field(default_factory=lambda: np.zeros(0))
    secret: bytes | None = None
    pending: PendingState | None = None
    stats: ContributionStats = field(default_factory=ContributionStats)
    row: Callable[[np.ndarray], np.ndarray] | None = None
    training: Training | None = None
    one_row: OneRow | None = None

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
        self.draw()
        step = advance(self.steps)
        while isinstance(step, Work) and step.batch_key is not None:
            step = advance(self.steps, (yield step))
        self.steps = _continued(step, self.steps)
        return self

    def draw(self) -> None:
        """Draw the noise share, if no aggregation draws it with those of other silos."""
        if self.one_row is not None:
            self.noise = self.one_row.draw()
            self.one_row = None

    def map(self, change: Callable[[Contributions], Contributions | None]) -> LocalJob:
        """The job with each block changed; None drops a block."""
        return replace(self, steps=changed(self.steps, change), training=None)


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
    while first is not None:
        first = advance(steps, (yield first))
