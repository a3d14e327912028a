"""Sampling of units, and the privacy amplification that it gives.

Lowy, Ghafelebashi and Razaviyayn draw with replacement, but account as if a record were drawn at
most once. The default here is without replacement. Each record has its own random number, and these
numbers decide the batch. No party outside of the silo learns the batch.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, REPLACE

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.rounds.query import Query
    from fedpriv.rounds.silo_context import Silo

AMPLIFIED_UP_TO = 0.25
"""Largest part of the records for which a batch without replacement is certified with
amplification. Above it, the bound is hardly better than that for all records (1238 records, 25
releases at multiplier 13.4: 1.760 for a batch of half of them, 1.796 for all). It also takes a
second a curve, and privacy loss distributions have no counterpart."""


def paper_batch(records: int, rounds: int, factor: float = 1.0) -> int:
    """K = floor(n sqrt(24) / (2 sqrt(R))), times `factor`, from 1 to all records (Appendix H)."""
    return min(
        records, max(1, math.floor(factor * records * math.sqrt(24) / (2 * math.sqrt(rounds))))
    )


class Sampling:
    """How units are sampled for a release. This base class samples every unit."""

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        """The event of a release over a sample.

        release: event for a unit that is always in the sample.
        size: size of the batch, or its expectation.
        records: number of records that the batch is drawn from.
        """
        return release


@dataclass(frozen=True)
class Coins(Sampling):
    """Each unit takes part with probability `rate`, independently of the others."""

    rate: float

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent

        if self.rate == 1 or release == NonPrivateDpEvent():
            return release
        return PoissonSampledDpEvent(self.rate, release)


class Batches(Sampling, ABC):
    """How a silo draws the batch of a query.

    adjacency: how neighbouring data sets differ.
    repeats: whether a record may be drawn several times.
    own_coins: whether each record is drawn or not independently of all others. Then a bound is
        known for a group of records; else a certificate assumes the whole group in every batch.
    note: assumption of the certificate.
    """

    adjacency: str = REPLACE
    repeats: bool = False
    own_coins: bool = False
    note: str = "batches are drawn afresh and stay in the silo"

    def scope(self, party: str, round: int) -> str:
        """The name of the disjoint part of the data that a party's message of a round uses."""
        return party

    def drawn_from(self, records: int) -> int:
        """The number of records, of a silo's `records`, that a batch is drawn from."""
        return records

    @abstractmethod
    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        """The positions of a query's batch among the silo's records, int64.

        size: size of the batch, or its expectation; the public divisor of its sum.
        """

    @abstractmethod
    def moved(self, size: int) -> float:
        """The distance by which one record moves a sum over the batch, in units of the bound on one
        summand."""

    def most(self, size: int, records: int) -> int:
        """The largest possible batch."""
        return size


@dataclass(frozen=True)
class WithoutReplacement(Batches):
    """`size` different records; all sets of this size are equally likely."""

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        rows = self.candidates(silo)
        if size == len(rows):
            return rows
        coins = _coins(silo, query)[rows]
        return rows[np.sort(np.argpartition(coins, size)[:size])]

    def candidates(self, silo: Silo) -> np.ndarray:
        """The positions of the records that a batch is drawn from, ascending."""
        return np.arange(len(silo.data.x))

    def moved(self, size: int) -> float:
        return 2.0

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent, SampledWithoutReplacementDpEvent

        if size > AMPLIFIED_UP_TO * records or release == NonPrivateDpEvent():
            return release
        return SampledWithoutReplacementDpEvent(records, size, release)


@dataclass(frozen=True)
class HalvedParts(WithoutReplacement):
    """Batches without replacement from one part of the silo's records: part 1 has a half of them,
    part 2 a quarter, part i floor(records / 2^i).

    The parts of one shuffle have no record in common, so each part is a scope. The shuffle may be
    public, as for `OnePass`; the batches within a part stay in the silo.

    part: number of the part, from 1.
    """

    part: int = field(default=1, kw_only=True)

    note = "every record is in one phase of the run; batches are drawn afresh and stay in the silo"

    def scope(self, party: str, round: int) -> str:
        return f"{party}/phase{self.part}"

    def drawn_from(self, records: int) -> int:
        return records >> self.part

    def candidates(self, silo: Silo) -> np.ndarray:
        records = silo.public_records
        first = sum(records >> earlier for earlier in range(1, self.part))
        own = _shuffled(silo)[first : first + self.drawn_from(records)]
        return np.sort(own)


@dataclass(frozen=True)
class Poisson(Batches):
    """Every record with probability size / records, independently. Adjacency is add/remove instead
    of replace."""

    adjacency = ADD_REMOVE
    own_coins = True

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        return np.flatnonzero(_coins(silo, query) * silo.public_records < size)

    def moved(self, size: int) -> float:
        return 1.0

    def most(self, size: int, records: int) -> int:
        return records

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent

        if size == records or release == NonPrivateDpEvent():
            return release
        return PoissonSampledDpEvent(size / records, release)


@dataclass(frozen=True)
class WithReplacement(Batches):
    """`size` independent draws, as in the paper and its programs. For comparison with them only:
    one record may fill the whole batch, and the certificate assumes that it does."""

    repeats = True
    note = (
        "COMPATIBILITY: batches with replacement; certified as if a record could be every one of "
        "its draws"
    )

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        rng = silo.streams.secret(query.stream("record sample"), query.round, silo.name)
        return np.asarray(rng.integers(0, len(silo.data.x), size), dtype=np.int64)

    def moved(self, size: int) -> float:
        return 2.0 * size


@dataclass(frozen=True)
class OnePass(Batches):
    """Batches of different rounds have no record in common.

    One shuffle is cut into `rounds` parts of equal size, and round r draws from the r-th part. So
    batches are disjoint even if their sizes differ between rounds; later rounds have none. The
    shuffle may be public: the certificate does not depend on its secrecy. A run that resumes from a
    checkpoint has the same shuffle.

    rounds: number of parts.
    """

    rounds: int

    note = "every record is in one batch of the run"

    def scope(self, party: str, round: int) -> str:
        return f"{party}/batch{round}"

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        part = silo.public_records // self.rounds
        if size > part:
            raise ValueError(f"a batch of {size} records from a part of {part}")
        first = (query.round - 1) * part
        last = first + size if query.round <= self.rounds else first
        return np.sort(_shuffled(silo)[first:last])

    def moved(self, size: int) -> float:
        return 2.0


SAMPLING: dict[str, type[Batches]] = {
    "without_replacement": WithoutReplacement,
    "poisson": Poisson,
    "with_replacement": WithReplacement,
}
"""Ways to draw a batch by their names in the configuration."""


def _shuffled(silo: Silo) -> np.ndarray:
    """The positions of the silo's records in the order of the run's one shuffle, int64."""
    return silo.streams.generator("pass", party=silo.name).permutation(len(silo.data.x))


def _coins(silo: Silo, query: Query) -> np.ndarray:
    """A uniform random number for each record, (n,) float64. It depends on that record only."""
    purpose = query.stream("record sample")
    return silo.streams.unit_coins(purpose, query.round, silo.name, silo.data.records)(0)
