"""Everything that is public and fixed once data are allocated and noise is calibrated.

Planning takes a round and a `Plan`, nothing else. Who may look, and what the aggregation lets each
of them see, enters every algorithm's events in one place, `Plan.observed_events`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.data.stability import UNSTATED, Stability
from fedpriv.errors import require
from fedpriv.rounds.query import Query
from fedpriv.training.optimizers import LocalOptimizer, Sgd

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.models.convexity import ConvexLoss
    from fedpriv.util.streams import Streams

UPDATE = "update"
"""The name of the query that most algorithms make, once a round."""
ROUNDED_ALIKE = "float32 training rounds a unit's contribution alike whoever else is there"
"""Kernels may add in another order for another number of rows; where one is replaced, the number
stays."""


@dataclass(frozen=True)
class Federation:
    """What everybody knows before the first round: how many users, silos and model parameters there
    are.

    silo_records: training records of each silo, for algorithms that declare them public; empty
        before the allocation.
    records_per_draw: records of a user in one silo come in groups of this size (2 for Cox losses,
        which need pairs).
    records_per_user: most records of a user that train, over all silos; None where nothing bounds
        them.
    loss: what is known to be convex about the training, None for nothing.
    stability: how far apart neighbouring files are when the first event happens.
    """

    n_users: int
    n_silos: int
    n_parameters: int
    silo_records: tuple[int, ...] = ()
    records_per_draw: int = 1
    records_per_user: int | None = None
    loss: ConvexLoss | None = None
    stability: Stability = UNSTATED


@dataclass(frozen=True)
class Observer:
    """Somebody who may look, and what the aggregation shows them beside the models that are
    released.

    sees_messages: every silo's noised message, not the total alone.
    sees_sample: which users are sampled for a round.
    sees_counts: how record counts reach it where weights depend on them; None where they do not.
    own_shares: how many noise shares of a sum it knows and can subtract: its own, and those of
        silos that collude.
    colluding: silos that tell it theirs.
    why_uncertified: why nothing can be certified against it; None where the protocol keeps what it
        promises.
    """

    name: str
    sees_messages: bool = False
    sees_sample: bool = True
    sees_counts: str | None = None
    own_shares: int = 0
    why_uncertified: str | None = None
    colluding: int = 0

    @property
    def subtracts(self) -> tuple[str, ...]:
        """What a certificate against it rests on if it knows a share of the noise."""
        if self.colluding:
            return (
                f"one {self.name} subtracts all noise that it and colluding silos "
                f"({self.colluding}) know",
            )
        return (
            (f"one {self.name} subtracts its own noise share and does not collude",)
            if self.own_shares
            else ()
        )


@dataclass(frozen=True)
class ThreatModel:
    """What an aggregation says of itself: who may look, which parties learn the total, what all of
    that rests on."""

    observers: tuple[Observer, ...]
    learners: tuple[str, ...]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Channel:
    """One kind of query with all its numbers.

    n_invited: silos that are invited.
    n_summed: silos that a released sum covers; noise shares are sized for so many.
    n_most: silos that it may cover where surplus noise is taken out, `n_summed` being the fewest;
        None: exactly those.
    encoding: how messages are made of integers; None: they are real numbers.
    """

    mechanism: Mechanism
    n_invited: int
    n_summed: int
    encoding: Encoding | None
    n_most: int | None = None

    def check_noise(self, sensitivity: float = 1.0) -> None:
        """Raise ConfigError when a noise share, or a part of one, cannot be told in whole grid
        steps."""
        self.mechanism.check_encoding(self.n_summed, self.encoding, sensitivity)
        if self.n_most is not None:
            from fedpriv.mechanisms.removable_noise import LEAST_PART, smallest_part

            parts = smallest_part(self.n_summed, self.n_most)
            self.mechanism.check_encoding(parts, self.encoding, sensitivity, least=LEAST_PART)


@dataclass(frozen=True)
class ObservedRelease:
    """What one observer sees of a query, before the aggregation's own flaws: see `Event`.

    why: what it rests on.
    """

    certified: DpEvent
    claimed: DpEvent | None
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """channels: one for each kind of query that the algorithm makes, by its name.
    optimizer: of local training.
    checked: whether the algorithm's class has passed `fedpriv.testing` as it stands.
    """

    federation: Federation
    channels: Mapping[str, Channel]
    threat_model: ThreatModel
    streams: Streams
    optimizer: LocalOptimizer = Sgd()
    checked: bool = False

    @property
    def channel(self) -> Channel:
        """That of an algorithm with a single kind of query."""
        (channel,) = self.channels.values()
        return channel

    @property
    def mechanism(self) -> Mechanism:
        return self.channel.mechanism

    @property
    def n_summed(self) -> int:
        return self.channel.n_summed

    @property
    def encoding(self) -> Encoding | None:
        return self.channel.encoding

    def observer(self, name: str) -> Observer:
        """The observer of this name. Raises ConfigError where the aggregation has none."""
        found = {observer.name: observer for observer in self.threat_model.observers}
        require(
            name in found,
            "algo.observer",
            name,
            f"an observer of this aggregation: {', '.join(found)}",
        )
        return found[name]

    @property
    def hides_messages(self) -> bool:
        """Whether nobody sees a single silo's message."""
        return not any(observer.sees_messages for observer in self.threat_model.observers)

    @property
    def hides_sample(self) -> bool:
        """Whether nobody sees which users are sampled, so that the parties draw them in the
        exchange."""
        return not any(observer.sees_sample for observer in self.threat_model.observers)

    def query(
        self, round: int, *, events: tuple[Event, ...], name: str = UPDATE, **details: Any
    ) -> Query:
        """A query of kind `name` to all silos, with messages as long as the model. details: what
        differs (`Query`)."""
        channel = self.channels[name]
        numbers: dict[str, Any] = {
            "invited": tuple(range(self.federation.n_silos)),
            "n_summed": channel.n_summed,
            "n_most": channel.n_most,
            "size": self.federation.n_parameters,
            "mechanism": channel.mechanism,
            "encoding": channel.encoding,
            "streams": self.streams,
            "checked": self.checked,
        }
        return Query(name=name, round=round, events=events, **(numbers | details))

    def observed_events(
        self,
        see: Callable[[Observer], ObservedRelease],
        *,
        unit: str,
        adjacency: str,
        channel: Channel | None = None,
        assumptions: tuple[str, ...] = (),
        scope: str = "",
        group_size: int = 1,
        weights_from_counts: bool = False,
    ) -> tuple[Event, ...]:
        """The events of one query, one for each observer.

        see: what the algorithm shows to an observer whose aggregation keeps its promises.
        assumptions: what all of them rest on.
        channel: None for the only one.
        weights_from_counts: whether the sum's weights depend on record counts, which then must
            reach no observer. The rest as in `Event`.
        """
        channel = channel or self.channel
        noise = channel.mechanism.assumptions(channel.encoding, real=self.streams.system)
        rounded = (ROUNDED_ALIKE,) if adjacency == ADD_REMOVE else ()
        base = (*noise, *rounded, *self.threat_model.assumptions, *assumptions)
        events = []
        for observer in self.threat_model.observers:
            view = see(observer)
            certified = view.certified
            why = view.why
            if weights_from_counts and observer.sees_counts:
                certified = _non_private()
                why = (f"FAILS: {observer.sees_counts}",)
            if observer.why_uncertified:
                certified = _non_private()
                why = (f"FAILS: {observer.why_uncertified}",)
            events.append(
                Event(
                    observer.name,
                    unit,
                    adjacency,
                    certified,
                    view.claimed,
                    scope,
                    (*base, *why),
                    group_size,
                )
            )
        return tuple(events)


def _non_private() -> DpEvent:
    from dp_accounting import NonPrivateDpEvent

    return NonPrivateDpEvent()
