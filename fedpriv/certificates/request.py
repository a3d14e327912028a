"""A method's declarations, and what one observer sees of them.

A method declares which unit it protects (`Target`), whose vectors it sums (`Contributors`), and for
each query the message and who adds the noise (`Request`). It never writes an event: the framework
derives all events (`fedpriv.certificates.derive`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.certificates.sampling import Batches, Sampling
from fedpriv.data.stability import Distance
from fedpriv.mechanisms.base import Mechanism
from fedpriv.parties.party import silo_name
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.plan import UPDATE, Observer, Plan, QueryParameters
from fedpriv.rounds.user_groups import UserGroup
from fedpriv.training.description import Recipe

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class Target:
    """The unit that a certificate protects.

    unit: "user", "record" or another name for what neighbouring data sets differ in.
    adjacency: whether one unit is added or removed, or replaced.
    records: largest number of training records of one unit, if the sensitivity of a release is that
        of one record; 1 if it is that of the unit.
    assumptions: assumptions of the certificate for this unit.
    fails: why no certificate holds for this unit; None: one holds.
    """

    unit: str
    adjacency: str
    records: int = 1
    assumptions: tuple[str, ...] = ()
    fails: str | None = None


@dataclass(frozen=True)
class Request:
    """One query of a round, as a method asks for it.

    noise: who adds the noise.
    name: name of the query; queries of one round have different names.
    invited: indices of the invited silos; None: all.
    n_summed: number of silos in the sum; None: the aggregation decides.
    size: number of coordinates of a message; None: number of model parameters.
    stateful: whether silos store something between rounds.
    batches: how a silo draws the records of its message; None: all records contribute.
    batch_size: public size of a silo's batch, as a function of its number of records.
    assumptions: assumptions of the certificate, beyond those of the framework.
    recipe: how each user trains from the broadcast vector "params", fixed before data are seen. The
        framework then trains every user alone and takes the change of its parameters. None: the
        method's own `local_update` computes contributions. That each is made of its own unit's
        records is then the author's word, and the certificate is declared.
    """

    noise: Noise
    name: str = UPDATE
    invited: tuple[int, ...] | None = None
    n_summed: int | None = None
    size: int | None = None
    stateful: bool = False
    batches: Batches | None = None
    batch_size: Callable[[int], int] = lambda records: records
    assumptions: tuple[str, ...] = ()
    recipe: Recipe | None = None

    def silos(self, plan: Plan) -> tuple[int, ...]:
        """The indices of the invited silos."""
        return tuple(range(plan.federation.n_silos)) if self.invited is None else self.invited

    def sum_of(self, plan: Plan) -> int:
        """The number of silos in the sum."""
        return plan.query_parameters[self.name].n_summed if self.n_summed is None else self.n_summed

    def length(self, plan: Plan) -> int:
        """The number of coordinates of a message."""
        size = plan.federation.n_parameters if self.size is None else self.size
        return size + plan.query_parameters[self.name].mechanism.marks


TURN = "users of turn "
"""Prefix of the scopes of users who take turns, before the number of the turn, from 1."""


def turn_scope(turn: int) -> str:
    """The scope of the users of a turn, from 0."""
    return f"{TURN}{turn + 1}"


def turn_of(scope: str) -> int | None:
    """The turn, from 0, of the users that a scope describes; None: it describes none."""
    return int(scope.removeprefix(TURN)) - 1 if scope.startswith(TURN) else None


class Row(NamedTuple):
    """What one unit's bounded sums move in messages that repeat earlier rounds.

    weight: distance that the messages move, over that of one round's sum; 0: they do not move.
    messages: number of messages.
    """

    weight: float
    messages: int


@dataclass(frozen=True)
class ObservedRelease:
    """What one observer sees of one disjoint part of the data in one query.

    request: the query as the method asks for it.
    plan: public plan of the run.
    contributors: units whose vectors are summed.
    target: protected unit.
    observer: the observer.
    round: round of the query.
    silo: silo of the part; None: all data.
    group: the unit's group of users; None: all users have one bound.
    turn: which of the parts of the users that take turns; None: no parts take turns, and no message
        repeats earlier sums.
    drawn: sizes of the batches of all invited silos with records, the largest first; empty where
        silos draw no batches.
    """

    request: Request
    plan: Plan
    contributors: Contributors
    target: Target
    observer: Observer
    round: int
    silo: int | None = None
    group: UserGroup | None = None
    turn: int | None = None
    drawn: Sequence[int] = ()

    @cached_property
    def row(self) -> Row:
        """How much of one unit's bounded sums this round's message contains."""
        if self.turn is None:
            return Row(1.0, 1)
        turns = self.contributors.turns
        rounds = range(self.turn + 1, self.round + 1, turns)
        here = bool(rounds) and rounds[-1] == self.round
        mixing = self.mechanism.mixing
        if mixing is None:
            return Row(float(here), 1)
        if self.contributors.rate == 1:
            return Row(math.fsum(mixing.weight(self.round - past) for past in rounds), 1)
        # A unit's coin of one round decides over all messages that repeat the round's sum. All of
        # them are charged, as one release, in the round itself.
        if mixing.bands > turns:
            raise ValueError("sums of one sampled unit in two rounds share a message")
        return Row(mixing.column_norm() * here, mixing.bands)

    @property
    def bound(self) -> float:
        """The bound on the unit's vector, relative to that of the mechanism. If the unit is
        replaced, one of any group may come: the mean of both bounds."""
        if self.group is None:
            return 1.0
        own = self.group.bound
        return own if self.target.adjacency == ADD_REMOVE else (own + 1) / 2

    @property
    def parameters(self) -> QueryParameters:
        return self.plan.query_parameters[self.request.name]

    @property
    def mechanism(self) -> Mechanism:
        return self.parameters.mechanism

    @property
    def n_summed(self) -> int:
        return self.request.sum_of(self.plan)

    @property
    def records(self) -> int:
        """Number of training records of the part's silo."""
        assert self.silo is not None
        return self.plan.federation.silo_records[self.silo]

    @cached_property
    def rounding(self) -> float:
        """The sensitivity that rounding to the grid of messages adds."""
        encoding = self.parameters.encoding
        once = self.mechanism.rounding(encoding, self.request.length(self.plan))
        return once * math.sqrt(self.row.messages)

    @cached_property
    def distance(self) -> Distance:
        """The distance of neighbouring data sets before the first event."""
        unit = "user" if self.target.unit == "user" else "record"
        return self.plan.federation.stability.of(unit, self.target.adjacency)

    @property
    def unknown_shares(self) -> int:
        """Number of noise shares of the sum that the observer does not know."""
        return self.n_summed - self.observer.own_shares

    @property
    def scope(self) -> str:
        """The name of the part; "" for all data."""
        if self.silo is None:
            alone = self.contributors.turns > 1 and self.turn is not None
            return turn_scope(self.turn or 0) if alone else ""
        party = silo_name(self.silo)
        return (
            party if self.request.batches is None else self.request.batches.scope(party, self.round)
        )


def observed_releases(
    request: Request,
    plan: Plan,
    contributors: Contributors,
    targets: Iterable[Target],
    observers: Iterable[Observer],
    round: int,
) -> Iterator[ObservedRelease]:
    """The observed releases of a query: one for each part of the data, protected unit, group of
    users and observer. A silo without records is no part."""
    parts: Iterable[int | None] = (None,)
    drawn: list[int] = []
    if request.noise.by_silo or contributors.one_silo:
        sizes = plan.federation.silo_records
        parts = silos = [silo for silo in request.silos(plan) if sizes[silo]]
        if request.batches is not None:
            drawn = sorted((request.batch_size(sizes[silo]) for silo in silos), reverse=True)
    # Nothing that depends on a user's records leaves a silo in rounds without its group.
    here = tuple(group for group in contributors.groups if group.takes_part(round))
    groups = here or (() if contributors.groups else (None,))
    mixed = plan.query_parameters[request.name].mechanism.mixing is not None
    every = contributors.turns
    turns: Iterable[int | None] = range(every) if mixed or every > 1 else (None,)
    for silo, target, group, turn, observer in product(parts, targets, groups, turns, observers):
        view = ObservedRelease(
            request, plan, contributors, target, observer, round, silo, group, turn, drawn
        )
        if view.row.weight:
            yield view


class Noise(ABC):
    """Who adds the noise of a query. It decides what each observer sees of a protected unit.

    by_silo: whether each silo's message has its own noise; each silo is then a part of the data.
    enforced: whether the framework bounds contributions and adds the noise.
    added: whether anybody adds noise.
    marks: whether the noise is also that of the marks of contributions, if their bound adapts.
    trusts: why events do not hold for a broadcast that is made to do harm; None: they hold for
        every broadcast.

    >>> from fedpriv.certificates.noise import SumNoise
    >>> noise = SumNoise(per_sum=lambda n_summed: 2.0 * n_summed)
    >>> noise.enforced, noise.sensitivity(n_summed=3)
    (True, 6.0)
    """

    by_silo: bool = False
    enforced: bool = False
    added: bool = True
    marks: bool = False
    trusts: ClassVar[str | None] = (
        "nothing is proven of this noise for broadcasts that it makes to do harm"
    )

    def sensitivity(self, n_summed: int) -> float:
        """The sensitivity that the noise of a sum is sized for, in units of the bound."""
        return 1.0

    @abstractmethod
    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        """The event of an observed release, an upper bound on its cost, and the event's
        assumptions."""

    def of_sums(self, view: ObservedRelease) -> bool:
        """Whether the event of a silo's part may count noise that also hides the parts of other
        silos. It does where the observer sees sums alone."""
        return not view.observer.sees_messages

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        """The assumptions of every observer's certificate."""
        return ()


@dataclass(frozen=True)
class Release:
    """A release, in units of the sensitivity that its noise is sized for.

    name: name of the query.
    moved: distance by which one unit moves the release.
    hidden: variance of the noise that the observer does not know, divided by the mechanism's
        variance.
    size: number of records in the batch.
    records: number of records that the batch is drawn from.
    """

    name: str
    moved: float
    hidden: float
    size: int = 1
    records: int = 1

    @property
    def gap(self) -> float:
        """Distance of neighbours' means in standard deviations, at noise multiplier 1."""
        return self.moved / math.sqrt(self.hidden)

    def of(self, records: int) -> Release:
        """The release for a group of `records` records."""
        return replace(self, moved=self.moved * records)

    def event(self, mechanism: Mechanism, sampling: Sampling) -> DpEvent:
        """The event of the release."""
        whole = mechanism.event(sensitivity=self.moved, shares=self.hidden)
        return sampling.event(whole, self.size, self.records)
