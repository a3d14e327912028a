"""Contributors to a sum: users, silos or records; and the weights of their contributions.

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
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.rounds.user_groups import UserGroup, membership

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData
    from fedpriv.rounds.plan import Federation


WEIGHT_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Weighting(ABC):
    """A rule for weights. Rules compare by value: an aggregation that supports one rule only
    compares with it.

    needs_counts: whether weights depend on how many records each unit has in each silo.
    own_units: whether each unit belongs to one silo, as a record does. Number i of one silo and
        number i of another silo are then different units, each with one weight.
    one_silo_each: whether a unit with records in two silos would count in full in each. Nothing is
        certified unless every unit has one silo (`Federation.one_silo_each`).
    """

    needs_counts: ClassVar[bool] = False
    own_units: ClassVar[bool] = False
    one_silo_each: ClassVar[bool] = False

    @abstractmethod
    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Weights (n_silos, n_units) float64 from record counts of that shape. Columns sum to at
        most 1 unless `own_units`. If `needs_counts` is False, only the shape of `counts` is
        used."""

    def spread(self, n_silos: int) -> float:
        """n times the sum of a unit's squared weights over n silos, in the worst case.

        It says how much more the silos' single messages reveal than their sum: 1 for equal weights,
        and n, the worst case, for a unit that may be in one silo only.
        """
        return float(n_silos)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        """Row `silo` of weights that need no counts, (n_units,) float64, for counts of `shape`. A
        silo computes it without trusting another party. Raises ValueError for weights beyond the
        sensitivity bound."""
        row: np.ndarray = bounded_weights(self.weights(np.zeros(shape, dtype=np.int64)))[silo]
        return row

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        """Raise ValueError unless `weights` can be a silo's row. Another party has computed them
        from the counts of all silos.

        counts: the silo's own counts, (n_units,) int64. A single silo cannot check the sum of a
            unit's weights over silos.
        """
        if (
            not isinstance(weights, np.ndarray)
            or weights.dtype != np.float64
            or weights.shape != counts.shape
        ):
            raise ValueError(f"not {len(counts)} numbers in float64")
        if not ((weights >= 0) & (weights <= 1)).all():  # NaN is neither
            raise ValueError("some are not between 0 and 1")


def bounded_weights(weights: np.ndarray) -> np.ndarray:
    """Return `weights` (n_silos, n_units). Raises ValueError if they break the sensitivity
    bound."""
    worst = weights.sum(axis=0).max()
    if not (weights.min() >= 0 and worst <= 1 + WEIGHT_TOLERANCE):
        raise ValueError(
            f"weights of a unit add up to {worst}: the sensitivity bound needs at most 1, none "
            "negative"
        )
    return weights


@dataclass(frozen=True)
class UniformWeighting(Weighting):
    """1 / S for every pair of a unit and a silo, even if the unit has no records there."""

    def spread(self, n_silos: int) -> float:
        return 1.0

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.full(counts.shape, 1.0 / len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        # A view of one number: the rows of many silos need no memory.
        return np.broadcast_to(1.0 / shape[0], shape[1])


@dataclass(frozen=True)
class RecordWeighting(Weighting):
    """n_su / N_u, and 0 for a unit without records.

    Kato et al., Uldp-FL, PVLDB 2024, equation 4.
    """

    needs_counts = True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        shares: np.ndarray = counts / np.maximum(counts.sum(axis=0), 1)
        return shares

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        super().check_row(weights, counts)
        if np.any(weights[counts == 0]):
            raise ValueError("some are for units without records here")


@dataclass(frozen=True)
class OwnWeighting(Weighting):
    """The unit is the silo itself, with weight 1."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.eye(len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        own = np.zeros(shape[1])
        own[silo] = 1.0
        return own


class InFull(Weighting):
    """Weight 1 in every silo."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.ones(counts.shape)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(1.0, shape[1])


@dataclass(frozen=True)
class RecordsInFull(InFull):
    """The units are each silo's own records, with weight 1."""

    own_units = True


@dataclass(frozen=True)
class HomeWeighting(InFull):
    """The units are users of one silo each, with weight 1."""

    one_silo_each = True


WEIGHTINGS: dict[str, type[Weighting]] = {
    "uniform": UniformWeighting,
    "records": RecordWeighting,
    "home": HomeWeighting,
}
"""Weightings by their names in the configuration."""
ONE_SILO_EACH = (
    "uniform, or data.user_scope=silo or allocator=by_user, so that each user has one silo"
)


class Contributors(ABC):
    """The units that contribute to every query of a method.

    weighting: the weight of each contributor's vector in each silo.
    rate: probability that a user takes part in a round.
    groups: groups of users with a bound of their own; empty: all have that of the mechanism.
    turns: number of public parts of the units that take turns: part i takes part in rounds i + 1,
        i + 1 + turns, and so on. 1: every unit takes part in every round.
    one_silo: whether a protected unit affects the message of one silo only.
    pooled: whether each silo trains on all of its records at once, so that records may influence
        each other. A bound, if there is one, then applies to the silo's whole update.
    any_number: whether a unit moves a sum over some of the silos at most as far as a sum over all.

    Authors of algorithms usually take one of the subclasses below.

    >>> Users(rate=0.1).bounds(None, 1) is None
    True
    >>> Silos().reach(3, replaced=False, single=False)
    6.0
    """

    weighting: Weighting
    rate: float = 1.0
    groups: tuple[UserGroup, ...] = ()
    turns: int = 1
    one_silo: ClassVar[bool] = False
    pooled: bool = False
    any_number: ClassVar[bool] = False

    @property
    def needs_sizes(self) -> bool:
        """Whether queries, and so epsilons, depend on each silo's number of training records: a
        silo then noises a sum of its records by itself."""
        return self.one_silo or not (self.any_number or self.pooled)

    @property
    def budgets(self) -> dict[str, float]:
        """The epsilon of each group of users that has a budget, by the group's name."""
        return {one.name: one.epsilon for one in self.groups if one.epsilon is not None}

    def bounds(self, federation: Federation, round: int) -> np.ndarray | None:
        """The bound on each contributor's vector in a round, relative to that of the mechanism,
        (number,) float64, 0 for those who take no part; None: 1 for all."""
        return None

    @abstractmethod
    def number(self, federation: Federation) -> int:
        """The number of contributors; for records, the largest number in one silo."""

    @abstractmethod
    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        """The number of records of each contributor in this silo, (number,) int64."""

    def units_in_sum(self, federation: Federation, round: int, n_summed: int) -> float:
        """The expected total weight of a sum over `n_summed` silos if each unit is in one silo."""
        return float(n_summed)

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

    weighting: the weights of a user's vectors; they add up to at most 1.
    rate: the probability that a user takes part in a round, equal for all users.
    groups: public groups of users with a bound of their own; empty: one bound for all.
    turns: number of public parts of the users that take turns, one part a round. User u is in part
        u modulo `turns`. 1: every user takes part in every round.
    """

    weighting: Weighting = field(default_factory=UniformWeighting)
    rate: float = 1.0
    groups: tuple[UserGroup, ...] = ()
    turns: int = 1
    any_number = True

    def __post_init__(self) -> None:
        if self.turns > 1 and self.groups:
            raise ValueError("groups of users with bounds of their own do not take turns")
        if self.weighting.own_units:
            raise ValueError(
                f"{type(self.weighting).__name__} weighs each silo's own units: a user of several "
                "silos would count in full in each of them"
            )

    def bounds(self, federation: Federation, round: int) -> np.ndarray | None:
        if self.turns > 1:
            turn = np.arange(federation.n_users) % self.turns
            return np.asarray(turn == (round - 1) % self.turns, dtype=float)
        if not self.groups:
            return None
        own = np.array([group.bound * group.takes_part(round) for group in self.groups])
        bounds: np.ndarray = own[membership(self.groups, federation.n_users)]
        return bounds

    def whole(self, federation: Federation, round: int) -> float:
        """The number of users, each counted by its bound in a round, relative to that of the
        mechanism."""
        bounds = self.bounds(federation, round)
        return float(federation.n_users) if bounds is None else float(bounds.sum())

    def units_in_sum(self, federation: Federation, round: int, n_summed: int) -> float:
        silos = federation.n_silos
        spread = silos**2 / self.weighting.spread(silos)
        return self.rate * self.whole(federation, round) * n_summed / spread

    def number(self, federation: Federation) -> int:
        return federation.n_users

    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_users, dtype=np.int64)
        counts[data.users] = data.counts
        return counts

    def most_in_message(self, federation: Federation) -> float:
        # A weight is at most 1, and 1 / S where all weights are equal.
        silos = federation.n_silos
        return federation.n_users * self.weighting.spread(silos) / silos

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        # Message s moves by w_s C under one n-th of the variance. All messages reveal as much as
        # one release that moves by sqrt(n sum w_s^2) C under the whole variance.
        reach = math.sqrt(self.weighting.spread(n_summed)) if single else 1.0
        return 2.0 * reach if replaced else reach


@dataclass(frozen=True)
class Silos(Contributors):
    """Each silo has one vector, computed from all of its records.

    pooled: whether a silo trains on its records at once, as if one user owned them.

    Without one user, a silo's bounded vector can become any other vector of the ball. It moves by
    up to twice the bound, in every silo that has records of the user.
    """

    pooled: bool = False
    weighting: Weighting = field(default_factory=OwnWeighting, init=False)

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

    weighting: Weighting = field(default_factory=RecordsInFull, init=False)
    one_silo = True

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
