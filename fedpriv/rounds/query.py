"""A query: one exchange of a round, with its broadcast, its contributions and its total."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import register
from fedpriv.parties.party import silo_name
from fedpriv.parties.post import Post, Serial
from fedpriv.parties.schema import Array, Entries, Instance, Maybe, Names, Number, Raw, Schema
from fedpriv.parties.signer import Signer
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.read_only import read_only, read_only_values

if TYPE_CHECKING:
    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.mechanisms.removable_noise import RemovableNoise
    from fedpriv.training.description import Recipe
    from fedpriv.util.streams import Streams


BOUND = "adaptive bound"
"""Name of the broadcast vector (1,) with the round's bound, if it adapts."""


STATE_DIGEST = 32
"""Length of the digest of a state, in bytes."""


SESSION_BYTES = 16
"""Length of a session's name: 8 bytes of time in nanoseconds, big-endian, and 8 random bytes."""


@register
@dataclass(frozen=True)
class SetUpTask:
    """Asks for the exchange before the first query, and after a party was lost. What a party is not
    told here it knows from its own settings.

    session: 16 bytes that identify all messages up to the next set-up; larger than the one before.
    silos: names of the silos that take part.
    state: arrays of the state that silos continue from if no helper holds it; None: a helper does.
    aborted: round and place of the last query if it had no sum. Each silo undoes what it stored in
        that query.
    round: the next query is of this round, or of a later one.
    """

    session: bytes
    silos: tuple[str, ...]
    state: dict[str, np.ndarray] | None = None
    aborted: Serial | None = None
    round: int = 1

    def post(self, name: str, signer: Signer) -> Post:
        """Party `name`'s gate."""
        return Post(name, self.session, signer=signer)


def next_session(last: bytes) -> bytes:
    """The name of the next set-up. Names grow, so that parties refuse an earlier one, over
    restarts too."""
    now = max(time.time_ns(), int.from_bytes(last[:8], "big") + 1)
    return now.to_bytes(8, "big") + os.urandom(SESSION_BYTES - 8)


@dataclass(frozen=True)
class Asked:
    """What a method asks of the silos.

    recipe: how each user trains; None: the algorithm computes the contributions by itself.
    stateful: whether silos store something between rounds; they then learn which silos are in the
        sum.
    enforced: whether the framework bounds contributions and adds the noise share. False: local
        training does both, and the algorithm only declares events.
    """

    recipe: Recipe | None = None
    stateful: bool = False
    enforced: bool = True


@dataclass(frozen=True)
class Exchange:
    """What the parties of a session agree on before they exchange messages.

    session: identifier of the last set-up.
    repeats: number of aborted queries in a row before this one, if the aggregation must not send
        the same message twice. Methods that train whole silos then train that many more epochs.
    down: names and shapes of the broadcast vectors.
    n_units: number of contributors: users, silos or records.
    """

    session: bytes = b""
    repeats: int = 0
    down: tuple[tuple[str, tuple[int, ...]], ...] = ()
    n_units: int = 0


@dataclass(frozen=True)
class Query:
    """One exchange. It is fixed before any party looks at data.

    name: name of the query; queries of one round have different names.
    round: number of the round, from 1.
    invited: indices of the invited silos.
    n_summed: number of silos in the sum; their noise shares add up to the noise.
    size: number of coordinates of a message.
    mechanism: bound and noise of a contribution.
    encoding: integer encoding of messages; None: messages are real numbers.
    events: what each observer learns; charged even if there is no sum.
    streams: random streams of the parties.
    place: position of the query in its round, from 0.
    sampled: (n_users,) bool: sampled users. None: all users, or the parties sample inside the
        protocol, so that no party knows the sample.
    user_rate: probability that a user is sampled.
    sensitivity: sensitivity of the sum that the noise is sized for, in units of the bound.
    n_most: largest number of silos in the sum if surplus noise can be removed; None: exactly
        `n_summed`.
    asked: what the method asks of the silos.
    exchange: what the parties agree on before the exchange.
    """

    name: str
    round: int
    invited: tuple[int, ...]
    n_summed: int
    size: int
    mechanism: Mechanism
    encoding: Encoding | None
    events: tuple[Event, ...]
    streams: Streams
    place: int = 0
    sampled: np.ndarray | None = None
    user_rate: float = 1.0
    sensitivity: float = 1.0
    n_most: int | None = None
    asked: Asked = Asked()
    exchange: Exchange = Exchange()

    @cached_property
    def silos(self) -> tuple[str, ...]:
        """Names of the invited silos, in the order of the invitation."""
        return tuple(map(silo_name, self.invited))

    @property
    def serial(self) -> tuple[int, int]:
        """Increases from query to query. Parties compare it to reject messages of another query."""
        return self.round, self.place

    def seen_by(self, observer: str, unit: str | None = None) -> tuple[Event, ...]:
        """The events against an observer.

        unit: those that concern this unit; one that is not private if there are others only.
        """
        events = tuple(event for event in self.events if event.observer == observer)
        own = tuple(event for event in events if unit in (None, event.unit))
        if own or not events or unit is None:
            return own
        from dp_accounting import NonPrivateDpEvent

        return (Event(observer, unit, ADD_REMOVE, NonPrivateDpEvent(), None),)

    def post(self, name: str, signer: Signer) -> Post:
        """Party `name`'s gate."""
        return Post(name, self.exchange.session, self.serial, signer=signer)

    @cached_property
    def broadcast_schema(self) -> Schema:
        """The schema of the broadcast to a silo."""
        vectors = {
            name: Array(np.float64, shape, finite=True) for name, shape in self.exchange.down
        }
        if self.mechanism.marks:
            low, high = self.mechanism.limits
            vectors[BOUND] = Array(np.float64, (1,), low=low, high=high, finite=True)
        return Instance(
            Broadcast,
            {
                "vectors": Entries(vectors),
                "sampled": Maybe(Array(np.bool_, (self.exchange.n_units,))),
            },
        )

    def summed_schema(self, silos: Collection[str]) -> Schema:
        """The schema of the message that tells stateful silos who is in the sum."""
        size = self.n_summed if self.n_most is None else None
        return Names(silos, size=size, container=tuple)

    def learned_schema(self, silos: Collection[str], *, silo: bool) -> Schema:
        """The schema of a party's result: a silo's report, None if it missed the set-up, or a
        helper's total."""
        vector = Array(np.float64, (self.size,))
        total = Maybe(Instance(Total, {"vector": vector, "silos": Names(silos, container=tuple)}))
        stats = Instance(
            ContributionStats,
            dict.fromkeys((field.name for field in fields(ContributionStats)), Number()),
        )
        report = {
            "total": total,
            "stats": Maybe(stats),
            "seconds": Number(),
            "state": Maybe(Raw(STATE_DIGEST)),
        }
        return Maybe(Instance(SiloReport, report)) if silo else total

    def stream(self, purpose: str) -> str:
        """The name of a random stream for this query. The first query of a round has no prefix."""
        return f"{self.name} {purpose}" if self.place else purpose

    def covered(self, total: Total) -> Total:
        """Return the total if it covers exactly `n_summed` silos, or up to `n_most`.

        Raises AggregationAbortedError otherwise: with fewer noise shares the sum is less private
        than declared, and with more silos its sensitivity may be larger.
        """
        covers = len(set(total.silos))
        most = self.n_summed if self.n_most is None else self.n_most
        if not self.n_summed <= covers <= most:
            allowed = str(self.n_summed) if most == self.n_summed else f"{self.n_summed} to {most}"
            raise AggregationAbortedError(f"the sum covers {covers} silos instead of {allowed}")
        return total

    @property
    def removable(self) -> RemovableNoise | None:
        """The noise if surplus noise is removed from the sum; None if each share stays as it is."""
        if self.n_most is None:
            return None
        from fedpriv.mechanisms.removable_noise import RemovableNoise

        if self.encoding is None:
            raise ValueError(f"query {self.name}: removable noise needs an integer encoding")
        return RemovableNoise(
            self.mechanism, self.n_summed, self.n_most, self.size, self.sensitivity, self.encoding
        )


def events_of(queries: tuple[Query, ...]) -> list[Event]:
    """The privacy events of a whole round."""
    return [event for query in queries for event in query.events]


@register
@dataclass(frozen=True)
class Broadcast:
    """The message that a silo receives at the start of a query.

    vectors: vectors that the algorithm needs at the silo, by name. They become read-only: silos of
        one process share them with each other and with the server.
    sampled: (n_users,) bool as in `Query`; None: silos do not learn the sample.
    """

    vectors: dict[str, np.ndarray]
    sampled: np.ndarray | None = None

    def __post_init__(self) -> None:
        if type(self.vectors) is dict:  # from another process, anything may come
            object.__setattr__(self, "vectors", read_only_values(self.vectors))
        object.__setattr__(self, "sampled", read_only(self.sampled))


@register
@dataclass(frozen=True)
class QueryTask:
    """Asks for one query, which a party knows from its own settings.

    round: number of the round, from 1.
    place: of the query in its round, from 0.
    repeats: as in `Exchange`.
    broadcast: what a helper sends down. Where no helper is, the sample of users alone; None: all.
    """

    round: int
    place: int
    repeats: int = 0
    broadcast: Broadcast | None = None


@register
@dataclass(frozen=True)
class Total:
    """The result of a query for the parties that learn it.

    vector: the sum, (size,) float64.
    silos: names of the silos in the sum.
    """

    vector: np.ndarray
    silos: tuple[str, ...]


SUMMED = "summed"
"""The last phase of a stateful query: tells stateful silos the names of those in the sum, so that
each can choose its next state."""


SiloState = Mapping[str, np.ndarray]
"""The arrays that a silo stores between rounds, by name. The algorithm chooses them."""

PendingState = dict[str, np.ndarray]
"""The arrays that a silo will store if the query ends with a sum."""


register(ContributionStats)  # reports leave a silo as messages


@register
@dataclass(frozen=True)
class SiloReport:
    """The result of a query at one silo.

    total: the total; None: silos do not learn it.
    stats: diagnostics of the contributions; None: a site keeps them to itself.
    seconds: running time of local training.
    state: digest of the silo's current state; None: a helper holds the state.
    """

    total: Total | None
    stats: ContributionStats | None
    seconds: float
    state: bytes | None = None
