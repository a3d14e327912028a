"""The vectors of many silos' messages, made as rows of one matrix.

The sums of one silo after the other (`WeightedSilo.noised_sum`) have the same bits.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Protocol

import numpy as np

from fedpriv.aggregation.base import encoding_of
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.one_row import OneRow, OneRowJob, bounded_matrix
from fedpriv.rounds.query import Query
from fedpriv.util.work import Work

PART_BYTES = 2**22
"""Bytes of the contributions that are computed together, so that they stay in a processor's
cache."""


class Weigher(Protocol):
    """A silo that knows its weights.

    name: of the silo.
    weights: of its units, (n_units,) float64.
    sums_as_usual: whether `noised_sum` is the one of fedpriv.
    """

    name: str
    weights: np.ndarray

    @property
    def sums_as_usual(self) -> bool: ...

    def noised_sum(self, query: Query, job: LocalJob) -> np.ndarray:
        """The result of `NoisedSum`, for this silo alone."""


@dataclass(frozen=True, eq=False)
class NoisedSum(Work[np.ndarray]):
    """A silo's weighted sum with its noise share, (size,): integers modulo R if the query has an
    encoding, else float64.

    silo: has the weights.
    query: of the sum.
    job: the silo's contributions and its noise share.
    """

    silo: Weigher
    query: Query
    job: LocalJob

    @property
    def batch_key(self) -> Hashable:
        """None unless the job has at most one contribution, which compiled code trains, and no
        subclass makes the message."""
        row = self.one_row if self._is_ours else None
        return None if row is None else (self.query.session, row.batch_key)

    @property
    def one_row(self) -> OneRow | None:
        """The job's contribution as a row of a matrix."""
        return self.job.one_row if isinstance(self.job, OneRowJob) else None

    @property
    def _is_ours(self) -> bool:
        """Whether `_noised` does what the silo and the encoding would do."""
        return self.silo.sums_as_usual and type(self.query.encoding) in (NoneType, FixedPoint)

    @property
    def nbytes(self) -> int:
        return 8 * self.query.size

    def run(self) -> np.ndarray:
        return self.silo.noised_sum(self.query, self.job)

    @classmethod
    def run_batch(cls, works: Sequence[NoisedSum]) -> list[np.ndarray]:
        rows = [work.one_row for work in works]
        first = rows[0]
        if len(works) == 1 or first is None or not first.shared.holds:
            return [work.run() for work in works]
        query = works[0].query
        at_once = max(1, PART_BYTES // (8 * max(1, query.size)))
        sums: list[np.ndarray] = []
        for start in range(0, len(works), at_once):
            part = works[start : start + at_once]
            counted = [(row.stats, replace(row.stats)) for row in rows[start:][:at_once] if row]
            try:
                sums += _noised(part, query)
            except Exception:  # the first silo that fails raises its own error
                for stats, before in counted:  # which counts its contributions again
                    vars(stats).update(vars(before))
                sums += [work.run() for work in part]
        return sums


def _noised(works: Sequence[NoisedSum], query: Query) -> list[np.ndarray]:
    rows = [work.one_row for work in works if work.one_row is not None]
    places, vectors = bounded_matrix(rows)
    weights = np.array([works[place].silo.weights[_unit(rows[place])] for place in places])
    signals = vectors.numpy()
    signals *= weights.reshape(-1, 1)
    signals += 0.0  # as a sum that begins with zero: no zero is negative
    if len(places) < len(works):
        present = signals
        signals = np.zeros((len(works), query.size))
        signals[places] = present
    if query.encoding is None:
        for signal, row in zip(signals, rows):
            signal += row.draw()
        return list(signals)
    noise = np.stack([row.draw() for row in rows])
    names = ", ".join(work.silo.name for work in works)
    return list(encoding_of(query, FixedPoint).encode(signals, names, noise))


def _unit(row: OneRow) -> int:
    assert row.user is not None
    return row.user.unit
