"""Jobs with at most one contribution, such as those of devices: the contributions of many silos are
bounded as rows of one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.bounding import bounded_rows
from fedpriv.rounds.local_job import LocalJob, Step, untouched
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo, stream_prefix
from fedpriv.training.contributions import Contributions, ContributionStats

if TYPE_CHECKING:
    import torch

    from fedpriv.training.one_user_silos import OneUser, SharedTraining


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


@dataclass(eq=False)
class OneRowJob(LocalJob):
    """A job with at most one contribution. Its noise share is drawn once somebody asks for it.

    known: the contribution, and the steps that compute it.
    """

    known: tuple[OneRow, Iterator[Step]] | None = None
    # Not a field: it would be set after `noise`, and lose what was given.
    _noise: ClassVar[np.ndarray] = np.zeros(0)

    @property  # type: ignore[misc]
    def noise(self) -> np.ndarray:
        if not len(self._noise) and self.known is not None:
            self.noise = self.known[0].draw()
        return self._noise

    @noise.setter
    def noise(self, noise: np.ndarray) -> None:
        vars(self)["_noise"] = noise

    @property
    def one_row(self) -> OneRow | None:
        """The contribution, for those who compute many at once; None for a job that somebody has
        read, changed since, as by `map`, or given another noise share."""
        if self.known is None or self.known[1] is not self.steps or len(self._noise):
            return None
        return self.known[0] if untouched(self.steps) else None


def one_row(
    job: LocalJob,
    silo: Silo,
    query: Query,
    *,
    stats: ContributionStats,
    bounds: np.ndarray | None,
    draw: Callable[[], np.ndarray],
    spent: Callable[[float], None],
) -> OneRow | None:
    """The job's contribution as a row, if it has at most one and compiled code trains it; else
    None. The arguments are fields of `OneRow`.

    Raises ConfigError where the training is refused.
    """
    training = job.training
    plain = query.enforced and query.mechanism.mixing is None and query.n_most is None
    # An author's bound has been tried on one silo's rows only.
    plain = plain and type(query.mechanism).bound is Mechanism.bound
    if training is None or not plain or job.pending is not None:
        return None
    data = silo.data
    chosen: list[int | None]
    if training.pooled:
        chosen = [None] if len(data.x) else []
    elif training.users is None:
        chosen = [*range(min(2, len(data.users)))]
    else:
        chosen = np.asarray(training.users, dtype=np.int64)[:2].tolist()
    if len(chosen) > 1 or query.size != len(training.start):
        return None
    from fedpriv.training.one_user_silos import OneUser, shared_training

    shared = shared_training(
        training,
        model=silo.model,
        data=data,
        task=silo.task,
        execution=silo.execution,
        streams=silo.streams,
    )
    if shared is None:
        return None
    user = None
    for position in chosen:
        unit = silo.index if position is None else int(data.users[position])
        user = OneUser(data, silo.name, position, unit)
    return OneRow(query, shared, user, stats, bounds, draw, spent)


def bounded_matrix(rows: Sequence[OneRow]) -> tuple[list[int], torch.Tensor]:
    """Train the users of these silos, and bound their contributions.

    Returns the places in `rows` of the contributions, and the contributions, (k, size) float64.
    Rows without a user, outside of the sample or not finite have none, as in `bounded`.
    """
    import time

    import torch

    query = rows[0].query
    since = time.perf_counter()
    places, users = [], []
    for place, row in enumerate(rows):
        if row.user is not None:
            places.append(place)
            users.append(row.user)
    deltas = np.empty((0, query.size), dtype=np.float32)
    if users:
        shared = rows[0].shared
        streams, prefix = query.streams, stream_prefix(query)
        deltas = shared.run(users, streams=streams, round=query.round, prefix=prefix)
    for row in rows:
        row.spent((time.perf_counter() - since) / len(rows))
    units = np.array([user.unit for user in users], dtype=np.int64)
    bounds = rows[0].bounds
    counts = np.ones(len(units), dtype=bool) if query.sampled is None else query.sampled[units]
    if bounds is not None:
        counts &= bounds[units] > 0
    if not counts.all():
        places = [place for place, inside in zip(places, counts.tolist()) if inside]
        units, deltas = units[counts], deltas[counts]
    own = None if bounds is None else bounds[units]
    vectors, norms = bounded_rows(Contributions(units, torch.from_numpy(deltas)), query, own)
    finite = np.isfinite(norms)
    limits = query.mechanism.clip * (np.ones(len(units)) if own is None else own)
    clipped = norms > limits
    for place, norm, fits, long in zip(places, norms.tolist(), finite.tolist(), clipped.tolist()):
        stats = rows[place].stats
        stats.units += 1
        stats.nonfinite += not fits
        stats.clipped += long and fits
        stats.norm_sum += norm if fits else 0.0
    if not finite.all():
        places = [place for place, fits in zip(places, finite.tolist()) if fits]
        vectors = vectors[torch.from_numpy(finite)]
    return places, vectors
