"""What a method declares, and the view that one observer has of it.

A method says whom it protects (`Target`), whose vectors it sums (`Contributors`), and for each
query what it asks for and who adds the noise (`Request`). It never writes an event: the framework
derives those (`fedpriv.certificates.derive`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedpriv.certificates.sampling import Batches
from fedpriv.parties.party import silo_name
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.plan import UPDATE, Observer, Plan, QueryParameters

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.mechanisms.base import Mechanism


TRUNCATED = "without one record another of its user's trains in its place"
"""Why a record that is added or removed has no certificate where users keep at most k records: one
goes and another comes, and nothing is proved of that with sampled batches."""


@dataclass(frozen=True)
class Target:
    """Whose data a certificate protects.

    unit: "user", "record" or another name of what neighbouring data differ in.
    adjacency: whether one unit is added or removed, or replaced.
    records: how many records that train belong to one unit at most, where a release is described
        by what one record moves; 1 where it is described by what the unit moves.
    assumptions: what the certificate rests on for this unit.
    fails: why nothing can be certified for it; None where something can.
    """

    unit: str
    adjacency: str
    records: int = 1
    assumptions: tuple[str, ...] = ()
    fails: str | None = None


@dataclass(frozen=True)
class Request:
    """One query of a round, before it is planned.

    noise: who adds the noise, and where.
    name: of the query; two queries of a round have different names.
    invited: silos that are asked; None: all.
    n_summed: how many of them the sum covers; None: as the aggregation has it.
    size: coordinates of a message; None: as many as the model has parameters.
    stateful: whether silos remember something of it.
    batches: how a silo draws the records of its message; None: all of them contribute.
    batch_size: of the number of a silo's records, the public size of its batch.
    assumptions: what the certificate rests on beyond the framework's own.
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

    def silos(self, plan: Plan) -> tuple[int, ...]:
        """The silos that are asked."""
        return tuple(range(plan.federation.n_silos)) if self.invited is None else self.invited

    def sum_of(self, plan: Plan) -> int:
        """How many silos the sum covers."""
        return plan.query_parameters[self.name].n_summed if self.n_summed is None else self.n_summed

    def length(self, plan: Plan) -> int:
        """Coordinates of a message."""
        return plan.federation.n_parameters if self.size is None else self.size


@dataclass(frozen=True)
class ObservedRelease:
    """What one observer sees of one disjoint part of the data in one query.

    silo: the part's silo; None: all data.
    round: of the query.
    """

    request: Request
    plan: Plan
    contributors: Contributors
    target: Target
    observer: Observer
    round: int
    silo: int | None = None

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
        """Training records of the part's silo."""
        assert self.silo is not None
        return self.plan.federation.silo_records[self.silo]

    @cached_property
    def rounding(self) -> float:
        """What rounding to the grid of messages adds to how far a unit moves one."""
        return self.mechanism.rounding(self.parameters.encoding, self.request.length(self.plan))

    @property
    def unknown_shares(self) -> int:
        """Noise shares of the sum that the observer does not know."""
        return self.n_summed - self.observer.own_shares

    @property
    def scope(self) -> str:
        """The name of the part; "" for all data."""
        if self.silo is None:
            return ""
        party = silo_name(self.silo)
        return (
            party if self.request.batches is None else self.request.batches.scope(party, self.round)
        )


class Noise(ABC):
    """Who adds the noise of a query, and so what each observer sees of a protected unit.

    by_silo: whether each silo's message is noised by itself, so that silos are parts of their own.
    enforced: whether the framework bounds contributions and adds the noise.
    """

    by_silo: bool = False
    enforced: bool = False

    def made_for(self, n_summed: int) -> float:
        """The distance that the noise of a sum is made for, in units of the bound."""
        return 1.0

    @abstractmethod
    def event(self, view: ObservedRelease) -> tuple[DpEvent, tuple[str, ...]]:
        """What the view costs at most, and what that rests on."""

    def assumptions(self, view: ObservedRelease) -> tuple[str, ...]:
        """What every observer's certificate rests on."""
        return ()
