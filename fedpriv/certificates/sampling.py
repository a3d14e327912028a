"""How units are sampled, and what that does to the privacy of one of them.

Lowy, Ghafelebashi, Razaviyayn draw with replacement and account as if a record came at most once;
here the default is without replacement. A batch is drawn by numbers of the records themselves,
which nobody outside of the silo learns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, REPLACE

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.rounds.local_job import Silo
    from fedpriv.rounds.query import Query

AMPLIFIED_UP_TO = 0.25
"""Largest part of the records for which a batch without replacement is certified as a sample.
Above, the bound is no better than that for all records or hardly so (1238 records, 25 releases at
multiplier 13.4: 1.760 for half of them, 1.796 for all), takes a second a curve, and has no
counterpart in privacy loss distributions."""


def paper_batch(records: int, rounds: int, factor: float = 1.0) -> int:
    """K = floor(n sqrt(24) / (2 sqrt(R))), times `factor`, from 1 to all records (Appendix H)."""
    return min(
        records, max(1, math.floor(factor * records * math.sqrt(24) / (2 * math.sqrt(rounds))))
    )


class Sampling:
    """Who takes part in a release. As it stands: every unit, always."""

    @property
    def of_groups(self) -> Sampling:
        """The same as far as it is proved of several records together."""
        return self

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        """What a release costs for a unit that takes part only if it is drawn.

        release: if the unit always took part.
        size: of a batch, or what it is on average.
        records: those that a batch is drawn from.
        """
        return release


@dataclass(frozen=True)
class Coins(Sampling):
    """Each unit takes part with probability `rate`, on its own."""

    rate: float

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        from dp_accounting import PoissonSampledDpEvent

        return PoissonSampledDpEvent(self.rate, release) if self.rate < 1 else release


class Batches(Sampling, ABC):
    """How a silo draws the batch of a query.

    adjacency: how neighbouring data differ.
    note: what the certificate rests on.
    repeats: whether a record may come several times.
    """

    adjacency: str = REPLACE
    repeats: bool = False
    note: str = "batches are drawn afresh and stay in the silo"

    def scope(self, party: str, round: int) -> str:
        """The disjoint part of the data that a party's message of a round is made of."""
        return party

    @abstractmethod
    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        """Positions of a query's batch among the silo's records, int64.

        size: of the batch, or what it is on average; the public number that its sum is divided by.
        """

    @abstractmethod
    def moved(self, size: int) -> float:
        """How far one record moves a sum over the batch, in units of the bound on its own
        summand.
        """

    def most(self, size: int, records: int) -> int:
        """The largest possible batch."""
        return size


@dataclass(frozen=True)
class WithoutReplacement(Batches):
    """`size` different records, every set as likely as the others.

    amplified: whether that is counted.
    """

    amplified: bool = True

    @property
    def of_groups(self) -> Batches:
        # No bound is known for a group in a batch of fixed size: all of it is taken for always
        # being there.
        return WithoutReplacement(amplified=False)

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        coins = _coins(silo, query)
        return (
            np.arange(len(coins))
            if size == len(coins)
            else np.sort(np.argpartition(coins, size)[:size])
        )

    def moved(self, size: int) -> float:
        return 2.0

    def event(self, release: DpEvent, size: int, records: int) -> DpEvent:
        from dp_accounting import NonPrivateDpEvent, SampledWithoutReplacementDpEvent

        if not self.amplified or size > AMPLIFIED_UP_TO * records or release == NonPrivateDpEvent():
            return release
        return SampledWithoutReplacementDpEvent(records, size, release)


@dataclass(frozen=True)
class Poisson(Batches):
    """Every record with probability size / records, on its own. The unit is then added or removed,
    not replaced."""

    adjacency = ADD_REMOVE

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        coins = _coins(silo, query)
        return np.flatnonzero(coins * len(coins) < size)

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
    """`size` independent draws, as in the paper and its programs; for comparison with them only.
    One record may fill the whole batch, and nothing better is certified."""

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
    """Round r takes the r-th `size` records of one shuffle: a record is in one batch of the run.
    Everybody may know the shuffle: what a batch costs does not rest on it. A run that goes on from
    a checkpoint has the same one."""

    note = "every record is in one batch of the run"

    def scope(self, party: str, round: int) -> str:
        return f"{party}/batch{round}"

    def rows(self, silo: Silo, query: Query, size: int) -> np.ndarray:
        shuffled = silo.streams.generator("pass", party=silo.name).permutation(len(silo.data.x))
        return np.sort(shuffled[(query.round - 1) * size : query.round * size])

    def moved(self, size: int) -> float:
        return 2.0


SAMPLING: dict[str, Batches] = {
    "without_replacement": WithoutReplacement(),
    "poisson": Poisson(),
    "with_replacement": WithReplacement(),
}


def _coins(silo: Silo, query: Query) -> np.ndarray:
    """A uniform number for each record, of that record alone: (n,) float64."""
    purpose = query.stream("record sample")
    return silo.streams.unit_coins(purpose, query.round, silo.name, silo.data.records)(0)
