"""Contributors to a sum: users, silos or records.

A contributor is the unit whose vector the framework bounds. It determines how far one protected
unit can move a sum:

- Users: the weights of one user's vectors add up to at most 1.
- Silos: one user can change a silo's vector into any other vector of the ball.
- Records: each record has one vector.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.rounds.user_groups import UserGroup, membership
from fedpriv.rounds.weighting import OwnWeighting, RecordsInFull, UniformWeighting, Weighting

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData
    from fedpriv.rounds.plan import Federation


@dataclass(frozen=True)
class Contributors(ABC):
    """The units that contribute to every query of a method.

    Authors of algorithms usually take one of the subclasses below.

    >>> Users(sampled=0.1).rate
    0.1
    >>> Silos().reach(3, replaced=False, single=False)
    6.0
    """

    @property
    @abstractmethod
    def weighting(self) -> Weighting:
        """The weight of each contributor's vector in each silo."""

    @property
    def rate(self) -> float:
        """The probability that a user takes part in a round."""
        return 1.0

    @property
    def groups(self) -> tuple[UserGroup, ...]:
        """Groups of users with a bound of their own; empty: all have that of the mechanism."""
        return ()

    @property
    def turns(self) -> int:
        """The number of public parts of the units that take turns: part i takes part in rounds
        i + 1, i + 1 + turns, and so on. 1: every unit takes part in every round."""
        return 1

    def bounds(self, federation: Federation, round: int) -> np.ndarray | None:
        """The bound on each contributor's vector in a round, relative to that of the mechanism,
        (number,) float64, 0 for those who take no part; None: 1 for all."""
        return None

    @property
    def one_silo(self) -> bool:
        """Whether a protected unit affects the message of one silo only."""
        return False

    @property
    def pooled(self) -> bool:
        """Whether each silo trains on all of its records at once, so that records may influence
        each other. A bound, if there is one, then applies to the silo's whole update."""
        return False

    @property
    def any_number(self) -> bool:
        """Whether a unit moves a sum over some of the silos at most as far as a sum over all."""
        return False

    @abstractmethod
    def number(self, federation: Federation) -> int:
        """The number of contributors; for records, the largest number in one silo."""

    @abstractmethod
    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        """The number of records of each contributor in this silo, (number,) int64."""

    def most_in_message(self, federation: Federation) -> float:
        """The largest total weight of one silo's message, in whole contributions; inf without a
        bound."""
        return math.inf

    def most_bounded(self, federation: Federation) -> float:
        """The same where the framework bounds each contribution."""
        return self.most_in_message(federation)

    @abstractmethod
    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        """The sensitivity of a sum over `n_summed` silos to one protected unit, in units of the
        bound.

        replaced: whether the unit is replaced by another, instead of added or removed.
        single: whether the observer sees each silo's noised message. The messages then reveal as
            much as one release with this sensitivity under the whole noise.
        """


@dataclass(frozen=True)
class Users(Contributors):
    """Each user has one vector in each silo.

    by: the weights of a user's vectors; they add up to at most 1.
    sampled: the probability that a user takes part in a round, equal for all users.
    grouped: public groups of users with a bound of their own; empty: one bound for all.
    cycle: number of public parts of the users that take turns, one part a round. User u is in part
        u modulo `cycle`. 1: every user takes part in every round.
    """

    by: Weighting = field(default_factory=UniformWeighting)
    sampled: float = 1.0
    grouped: tuple[UserGroup, ...] = ()
    cycle: int = 1

    def __post_init__(self) -> None:
        if self.cycle > 1 and self.grouped:
            raise ValueError("groups of users with bounds of their own do not take turns")
        if self.by.own_units:
            raise ValueError(
                f"{type(self.by).__name__} weighs each silo's own units: a user of several silos "
                "would count in full in each of them"
            )

    @property
    def weighting(self) -> Weighting:
        return self.by

    @property
    def rate(self) -> float:
        return self.sampled

    @property
    def groups(self) -> tuple[UserGroup, ...]:
        return self.grouped

    @property
    def turns(self) -> int:
        return self.cycle

    def bounds(self, federation: Federation, round: int) -> np.ndarray | None:
        if self.cycle > 1:
            turn = np.arange(federation.n_users) % self.cycle
            return np.asarray(turn == (round - 1) % self.cycle, dtype=float)
        if not self.grouped:
            return None
        own = np.array([group.bound * group.takes_part(round) for group in self.grouped])
        bounds: np.ndarray = own[membership(self.grouped, federation.n_users)]
        return bounds

    def whole(self, federation: Federation, round: int) -> float:
        """The number of users, each counted by its bound in a round, relative to that of the
        mechanism."""
        bounds = self.bounds(federation, round)
        return float(federation.n_users) if bounds is None else float(bounds.sum())

    @property
    def any_number(self) -> bool:
        return True

    def number(self, federation: Federation) -> int:
        return federation.n_users

    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_users, dtype=np.int64)
        counts[data.users] = data.counts
        return counts

    def most_in_message(self, federation: Federation) -> float:
        # Weights that depend on counts may give all users to one silo.
        silos = 1 if self.by.needs_counts else federation.n_silos
        return federation.n_users / silos

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        # Message s moves by w_s C under one n-th of the variance. All messages reveal as much as
        # one release that moves by sqrt(n sum w_s^2) C under the whole variance.
        reach = math.sqrt(self.by.spread(n_summed)) if single else 1.0
        return 2.0 * reach if replaced else reach


@dataclass(frozen=True)
class Silos(Contributors):
    """Each silo has one vector, computed from all of its records.

    whole: whether a silo trains on its records at once, as if one user owned them.

    Without one user, a silo's bounded vector can become any other vector of the ball. It moves by
    up to twice the bound, in every silo that has records of the user.
    """

    whole: bool = False

    @property
    def pooled(self) -> bool:
        return self.whole

    @property
    def weighting(self) -> Weighting:
        return OwnWeighting()

    def number(self, federation: Federation) -> int:
        return federation.n_silos

    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_silos, dtype=np.int64)
        counts[silo] = len(data.x)
        return counts

    def most_bounded(self, federation: Federation) -> float:
        return 1.0

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        return 2.0 * n_summed  # under both adjacencies: any vector of the ball may come


@dataclass(frozen=True)
class RecordVectors(Contributors):
    """Each record has one vector; a record is in one silo.

    The number of records of each silo is public. A contributor's number is its position in the
    silo's data. A record outside of the batch contributes zero.
    """

    @property
    def weighting(self) -> Weighting:
        return RecordsInFull()

    @property
    def one_silo(self) -> bool:
        return True

    def number(self, federation: Federation) -> int:
        return max(federation.silo_records, default=1)

    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(self.number(federation), dtype=np.int64)
        counts[: len(data.x)] = 1
        return counts

    def most_bounded(self, federation: Federation) -> float:
        return float(self.number(federation))

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        return 2.0 if replaced else 1.0
