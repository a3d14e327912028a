"""One exchange of a round: what is asked of whom, what is sent down for it, and what comes back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.events import CHECKED, DECLARED, Event
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import register
from fedpriv.parties.post import Post, Serial
from fedpriv.parties.schema import Array, Entries, Instance, Maybe, Names, Number, Raw, Schema
from fedpriv.parties.signer import CHECKSUM, Signer
from fedpriv.training.contribution_stats import ContributionStats

if TYPE_CHECKING:
    import torch

    from fedpriv.encoding.base import Encoding
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.mechanisms.removable_noise import RemovableNoise
    from fedpriv.util.streams import Streams
    from fedpriv.util.work import DeferredWork


STATE_DIGEST = 32
"""Bytes that stand for a state."""


@dataclass(frozen=True)
class SetUp:
    """The exchange before the first query, and after parties were lost.

    session: 16 bytes that name everything up to the next one.
    n_units: users or silos, as the algorithm's contributions have them.
    state: arrays of the state that silos go on from where no helper holds it; None where one does.
    aborted: round and place of the last query, if it had no sum: what a silo has remembered of it
        is undone.
    silos: those that take part; empty: all.
    """

    session: bytes
    n_units: int
    state: Mapping[str, np.ndarray] | None = None
    aborted: Serial | None = None
    silos: tuple[str, ...] = ()

    def post(self, name: str, signer: Signer = CHECKSUM) -> Post:
        """Party `name`'s gate."""
        return Post(name, self.session, signer=signer)


@dataclass(frozen=True)
class Query:
    """One exchange, fixed before anybody looks at data.

    name: its kind; two queries of a round have different names.
    round, place: the round, and the query's place in it.
    invited: silos that are asked.
    n_summed: how many of them the sum covers; their noise shares make up the noise.
    size: coordinates of a message.
    encoding: how messages are made of integers; None: they are real numbers.
    events: what each observer will have seen once it is over; charged whether or not there is a
        sum.
    sampled: (n_users,) bool, who is sampled, or None for everyone; None also where the parties
        sample in the exchange, so that nobody knows.
    user_rate: the probability that a user is.
    enforced: whether the framework bounds contributions by the mechanism and adds the noise share;
        False where both happen inside local training, so that `events` are the algorithm's word.
    checked: whether `fedpriv.testing` has held its class to it. Together they are the events'
        status.
    derived: whether events rest on the framework's own classes alone; a noise, a weighting, a
        mechanism or batches of somebody else's are their author's word, as is who draws batches.
    sensitivity: of the sum, that the noise is made for, in units of the bound.
    stateful: whether silos remember something of it; they are then told who is in the sum.
    streams: for draws of the parties.
    n_most: the sum may cover up to so many silos, and noise that is then too much is taken out;
        None: `n_summed` alone.
    again: how many queries in a row before it had no sum, where what those were about must not be
        sent again: methods that train whole silos train so many epochs longer.
    session: that of the last set-up.
    down: names and shapes of the vectors that are sent down.
    n_units: users or silos, as contributions have them.
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
    enforced: bool = True
    checked: bool = False
    derived: bool = True
    sensitivity: float = 1.0
    stateful: bool = False
    again: int = 0
    session: bytes = b""
    down: tuple[tuple[str, tuple[int, ...]], ...] = ()
    n_units: int = 0
    n_most: int | None = None

    def __post_init__(self) -> None:
        if self.n_most is not None and not self.enforced:
            raise ValueError(
                f"query {self.name}: noise inside local training cannot be taken out of a sum"
            )
        # Here, since every query comes by, however it was made or changed: what is not enforced
        # cannot pass for it.
        if not (self.enforced and self.derived):
            status = CHECKED if self.checked else DECLARED
            object.__setattr__(
                self, "events", tuple(replace(event, status=status) for event in self.events)
            )

    @property
    def serial(self) -> tuple[int, int]:
        """Grows from query to query: what must serve for one query alone is held against it."""
        return self.round, self.place

    def post(self, name: str, signer: Signer = CHECKSUM) -> Post:
        """Party `name`'s gate."""
        return Post(name, self.session, self.serial, signer=signer)

    @property
    def broadcast_schema(self) -> Schema:
        """What a silo may be sent down."""
        vectors = {name: Array(np.float64, shape, finite=True) for name, shape in self.down}
        return Instance(
            Broadcast,
            {"vectors": Entries(vectors), "sampled": Maybe(Array(np.bool_, (self.n_units,)))},
        )

    def summed_schema(self, silos: Collection[str]) -> Schema:
        """What silos that keep a state may be told at the end."""
        return Instance(
            Summed,
            {
                "silos": Names(
                    silos, size=self.n_summed if self.n_most is None else None, container=tuple
                )
            },
        )

    def learned_schema(self, silos: Collection[str], *, silo: bool) -> Schema:
        """What a party may say that it has learned: a silo's report, or a helper's total."""
        vector = Array(np.float64, (self.size,))
        total = Maybe(Instance(Total, {"vector": vector, "silos": Names(silos, container=tuple)}))
        stats = Instance(
            ContributionStats,
            dict.fromkeys((field.name for field in fields(ContributionStats)), Number()),
        )
        report = {
            "total": total,
            "stats": stats,
            "seconds": Number(),
            "state": Maybe(Raw(STATE_DIGEST)),
        }
        return Instance(SiloReport, report) if silo else total

    def stream(self, purpose: str) -> str:
        """The name of a random stream for this query; the first of a round has the plain name."""
        return f"{self.name} {purpose}" if self.place else purpose

    def covered(self, total: Total) -> Total:
        """The total, if it covers exactly `n_summed` silos, or up to `n_most`. Raises
        AggregationAbortedError: with fewer noise shares the sum is less private than declared, and
        with more it may move further."""
        covers = len(set(total.silos))
        most = self.n_summed if self.n_most is None else self.n_most
        if not self.n_summed <= covers <= most:
            allowed = str(self.n_summed) if most == self.n_summed else f"{self.n_summed} to {most}"
            raise AggregationAbortedError(f"the sum covers {covers} silos instead of {allowed}")
        return total

    @property
    def removable(self) -> RemovableNoise | None:
        """The noise where some of it is taken out again; None where each silo's share stays as it
        is."""
        if self.n_most is None:
            return None
        from fedpriv.mechanisms.removable_noise import RemovableNoise

        if self.encoding is None:
            raise ValueError("what is to be taken out again needs the grid that messages lie on")
        return RemovableNoise(
            self.mechanism, self.n_summed, self.n_most, self.size, self.sensitivity, self.encoding
        )

    def silo_query(self) -> Query:
        """What silos know of it beforehand. Who is sampled they learn from the broadcast, where
        they may."""
        return replace(self, sampled=None, events=())

    def peer_query(self) -> Query:
        """What silos know of it where no helper samples for them."""
        return replace(self, events=())


@register
@dataclass(frozen=True)
class Broadcast:
    """What is sent down to a silo for a query.

    vectors: by name, what the algorithm needs there.
    sampled: as in `Query`, None where silos are not told.
    """

    vectors: dict[str, np.ndarray]
    sampled: np.ndarray | None = None


@register
@dataclass(frozen=True)
class Total:
    """What a query's exchange gives to whoever learns it: the sum (size,) float64, and the silos
    that are in it."""

    vector: np.ndarray
    silos: tuple[str, ...]


SUMMED = "summed"
"""The last phase of a stateful query."""


@register
@dataclass(frozen=True)
class Summed:
    """Tells silos that keep a state which of them are in the sum, so that each knows what to go on
    from."""

    silos: tuple[str, ...]


@dataclass(frozen=True)
class Contributions:
    """Some units' vectors, streamed in blocks so that memory does not grow with the number of
    units.

    units: (k,) int64 ids.
    vectors: (k, size) on the training device; raw float32 or float64 from an algorithm, bounded
        float64 once the framework has them.
    """

    units: np.ndarray
    vectors: torch.Tensor


@dataclass(frozen=True)
class Update:
    """One silo's part of a query as the aggregation takes it: a stream of contributions, each
    within the mechanism's bound, and the silo's noise share (size,) float64.

    secret: what its removable parts hang on (`RemovableNoise`).
    ahead: work whose result the contributions are made of, if there is one, for whoever can have it
        done together with other silos' (`aggregation.base.trained`).
    """

    blocks: Iterator[Contributions]
    noise: np.ndarray
    secret: bytes | None = None
    ahead: DeferredWork[Any] | None = None


SiloState = Mapping[str, np.ndarray]
"""What a silo remembers between rounds, by name; an algorithm decides."""

PendingState = dict[str, np.ndarray]
"""What a silo will remember if the query ends with a sum."""


register(ContributionStats)  # what parties have learned leaves them as messages do


@register
@dataclass(frozen=True)
class SiloReport:
    """How a query ended at one silo: the total if silos learn it, diagnostics, and seconds of local
    training.

    state: the digest of the state that it holds now; None where a helper holds it.
    """

    total: Total | None
    stats: ContributionStats
    seconds: float
    state: bytes | None = None
