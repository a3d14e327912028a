"""Whose vectors a sum is made of: users, silos or records.

A contributor is the unit whose vector the framework bounds. How far one protected unit moves a sum
follows from it: a user's weights add up to at most 1, a silo's vector may become any other, a
record has one vector of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.rounds.weighting import OwnWeighting, RecordsInFull, UniformWeighting, Weighting

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData
    from fedpriv.rounds.plan import Federation


@dataclass(frozen=True)
class Contributors(ABC):
    """Who contributes to every query of a method.

    >>> Users(sampled=0.1).rate
    0.1
    >>> Silos().reach(3, replaced=False, single=False)
    6.0
    """

    @property
    @abstractmethod
    def weighting(self) -> Weighting:
        """How much each contributor's vector counts in each silo."""

    @property
    def rate(self) -> float:
        """The probability with which a user takes part in a round."""
        return 1.0

    @property
    def one_silo(self) -> bool:
        """Whether everything that a protected unit moves lies in one silo."""
        return False

    @property
    def pooled(self) -> bool:
        """Whether each silo trains on all of its records at once, so that they may influence each
        other. What is bounded then, if anything is, is the silo's whole update."""
        return False

    @property
    def any_number(self) -> bool:
        """Whether a unit moves a sum over some silos no further than the sum over all of them."""
        return False

    @abstractmethod
    def number(self, federation: Federation) -> int:
        """How many contributors there are; for records, the most in one silo."""

    @abstractmethod
    def counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        """Records of each contributor in this silo, (number,) int64."""

    def most_in_message(self, federation: Federation) -> float:
        """How many whole contributions one silo's weighted message may be worth at most; inf where
        nothing bounds it."""
        return math.inf

    @abstractmethod
    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        """How far one protected unit moves a sum over `n_summed` silos, in units of the bound.

        replaced: whether the unit is replaced by another, instead of added or removed.
        single: for who sees each silo's noised message. Together the messages are worth as much as
            one release that moves so far under the whole noise.
        """


@dataclass(frozen=True)
class Users(Contributors):
    """Each user has one vector in each silo.

    by: the weights of a user's vectors, which add up to at most 1.
    sampled: the probability with which a user takes part in a round, the same for all.
    """

    by: Weighting = field(default_factory=UniformWeighting)
    sampled: float = 1.0

    def __post_init__(self) -> None:
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
    def pooled(self) -> bool:
        """Whether each silo trains on all of its records at once, so that they may influence each
        other. What is bounded then, if anything is, is the silo's whole update."""
        return False

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
        # Message s moves by w_s C under one n-th of the variance: all of them tell as much as one
        # release that moves by sqrt(n sum w_s^2) C under the whole.
        reach = math.sqrt(self.by.spread(n_summed)) if single else 1.0
        return 2.0 * reach if replaced else reach


@dataclass(frozen=True)
class Silos(Contributors):
    """Each silo has one vector, made of all of its records.

    whole: whether it trains on them at once, as if one user owned them.

    A silo's bounded vector can become any other of the ball without one user: it moves by twice
    the bound, in every silo that has records of the user.
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

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        return 2.0 * n_summed  # its vector may become any other either way


@dataclass(frozen=True)
class RecordVectors(Contributors):
    """Each record has one vector; a record lives in one silo.

    How many records each silo has is public. A contributor's number is its position in the silo's
    data. Records that a batch leaves out count as zero.
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

    def reach(self, n_summed: int, *, replaced: bool, single: bool) -> float:
        return 2.0 if replaced else 1.0
