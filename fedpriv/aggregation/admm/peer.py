"""A peer's part in an average by ADMM.

Phases of iteration i: "y i" inside groups, or "share i" and "partial i" with masks; "sum i" between
the groups' leaders; "relay i" from each leader to its group; "check i" inside groups, where all
members compare the result. At the end, in "done", all peers compare their averages. A peer that
misses a message, or receives one that no honest peer sends, falls silent, and so do all peers that
wait for it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import Respond, encoding_of
from fedpriv.aggregation.weighted import COUNTS, MAX_RECORDS, WeightedSilo
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, Serial
from fedpriv.parties.schema import Array, Parts, Raw, Schema
from fedpriv.rounds.contributors import bounded_weights
from fedpriv.rounds.query import Broadcast, Query, SetUpTask, Total

if TYPE_CHECKING:
    from fedpriv.aggregation.admm.settings import AdmmSettings
    from fedpriv.topology.groups import Partitions


@dataclass
class Averaging:
    """The variables of ADMM, all of shape (d,).

    vector: the peer's own, w.
    dual: lambda, uniform on [0, 1) at first.
    z: the average so far, which all peers know.
    x: the peer's own estimate.
    """

    vector: np.ndarray
    dual: np.ndarray
    z: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.z = np.zeros_like(self.vector)

    def message(self, rho: float) -> np.ndarray:
        """Minimise over x; return y of the next iteration."""
        self.x = (2 * self.vector - self.dual + rho * self.z) / (2 + rho)
        return self.x + self.dual / rho

    def take(self, z: np.ndarray, rho: float) -> float:
        """Continue with the new z; return how far its coordinates have moved at most."""
        step = float(np.abs(z - self.z).max(initial=0.0))
        self.dual = self.dual + rho * (self.x - z)
        self.z = z
        return step


Y, SHARE, PARTIAL, SUM, RELAY, CHECK = "y", "share", "partial", "sum", "relay", "check"
"""Phases of an iteration, before its number."""
PRESENT, DONE = "present", "done"
"""First and last phase: of the set-up, and of an average."""
DIGEST_BYTES = 32


@dataclass(repr=False)
class AdmmPeer(WeightedSilo):
    """A silo that averages with the other silos.

    shares: each present peer's weight in the average, by name; they add up to 1.
    spent: serial of the last query that it took part in.
    under_way: digest of the vector that its messages are about.
    done: digest of the last vector whose average it has.
    given_up: digests of the vectors of aborted aggregations.
    """

    aggregation: AdmmSettings
    shares: Mapping[str, float] = field(init=False)
    spent: Serial = (0, 0)
    under_way: bytes | None = None
    done: bytes | None = None
    given_up: set[bytes] = field(default_factory=set)

    def setup(self, task: SetUpTask, counts: np.ndarray) -> Party:
        """Hear all present peers, and exchange counts if anything depends on them."""
        self.spent = (0, 0)
        present = task.silos or self.silos
        aborted = (self.under_way, self.done if task.aborted else None)
        self.given_up |= {digest for digest in aborted if digest}
        post = task.post(self.name, self.signer)
        yield from _from_all(post, PRESENT, b"", present, Raw(0))  # who is silent is left out
        self.shares = dict.fromkeys(present, 1 / len(present))
        by_records = self.aggregation.average == "records"
        if not self.weighting.needs_counts:
            self.weights = self.own_weights(counts)
        if not (self.weighting.needs_counts or by_records):
            return
        schema = Array(np.int64, counts.shape, low=0, high=MAX_RECORDS)
        known = yield from _from_all(post, COUNTS, counts, present, schema)
        table = np.stack([known.get(name, np.zeros_like(counts)) for name in self.silos])
        if self.weighting.needs_counts:
            weights = bounded_weights(self.weighting.weights(table))
            self.weights = weights[self.silos.index(self.name)]
        if by_records:
            totals = table.sum(axis=1)
            shares = dict(zip(self.silos, (totals / max(totals.sum(), 1)).tolist()))
            self.shares = {name: shares[name] for name in present}

    def query(self, query: Query, respond: Respond) -> Party:
        if query.serial <= self.spent:
            raise RuntimeError(
                f"{self.name} has taken part in round {query.round}, query {query.place} already"
            )
        self.spent = query.serial
        vector = self._vector((yield from self.summed(query, respond(Broadcast({})))), query)
        self._begin(vector)
        streams = query.streams.secret(query.stream("dual variable"), query.round, self.name)
        dual = streams.random(query.size)
        post = query.post(self.name, self.signer)
        peers = query.silos
        exchange = _Exchange(
            post,
            self.aggregation,
            peers,
            self.shares,
            size=query.size,
            partitions=self.aggregation.partitions(len(peers)),
            ring=self.aggregation.ring(len(self.silos)),
        )
        z = yield from exchange.run(Averaging(vector, dual))
        self.under_way, self.done = None, self.under_way
        return Total(len(query.invited) * z, peers)

    def _vector(self, noised: np.ndarray, query: Query) -> np.ndarray:
        # Noise that protects somebody consists of whole grid steps. The sum of both is a float64
        # without another rounding.
        return noised if query.encoding is None else encoding_of(query, FixedPoint).decode(noised)

    def _begin(self, vector: np.ndarray) -> None:
        """Note what the messages are about.

        Raises AggregationAbortedError for the vector of an aborted aggregation: both aggregations
        together may determine it. A zero vector reveals nothing.
        """
        digest = digest_of(vector)
        if vector.any() and digest in self.given_up:
            raise AggregationAbortedError(
                f"{self.name} would repeat the vector of an aborted aggregation"
            )
        self.under_way = digest


@dataclass
class _Exchange:
    """One aggregation.

    peers: all peers, in an order that all of them know; the partitions number them in this order.
    ring: encoding of masked messages; None: messages are not masked.
    """

    post: Post
    aggregation: AdmmSettings
    peers: tuple[str, ...]
    shares: Mapping[str, float]
    size: int
    partitions: Partitions
    ring: FixedPoint | None

    def run(self, own: Averaging) -> Generator[Mail, Mail, np.ndarray]:
        """The average, once all peers have the same."""
        tolerance = self.aggregation.tolerance
        for iteration in range(1, self.aggregation.most_iterations + 1):
            rho = self.aggregation.penalty.at(iteration)
            z = yield from self._iteration(iteration, own.message(rho))
            moved = own.take(z, rho)
            if tolerance is not None and moved <= tolerance:
                break
        others = _without(self.post.name, self.peers)
        yield from self._compared(
            DONE, dict.fromkeys(others, digest_of(own.z)), DONE, others, own.z
        )
        return own.z

    def _iteration(self, number: int, y: np.ndarray) -> Generator[Mail, Mail, np.ndarray]:
        partition = self.partitions[(number - 1) % len(self.partitions)]
        groups = [tuple(self.peers[place] for place in group) for group in partition]
        at = next(place for place, group in enumerate(groups) if self.post.name in group)
        if self.ring is None:
            own = yield from self._group_sum(number, y, groups[at])
        else:
            own = yield from self._masked_sum(number, y, groups[at], self.ring)
        if len(groups) == 1:
            return own
        return (yield from self._sum_of_groups(number, own, groups, at))

    def _group_sum(
        self, number: int, y: np.ndarray, group: tuple[str, ...]
    ) -> Generator[Mail, Mail, np.ndarray]:
        """The weighted sum of the group's messages, added in the same order by all members."""
        known = yield from _from_all(self.post, f"{Y} {number}", y, group, self._schema)
        total: np.ndarray = np.zeros(self.size)
        for name in group:
            total += self.shares[name] * known[name]
        return total

    def _masked_sum(
        self, number: int, y: np.ndarray, group: tuple[str, ...], ring: FixedPoint
    ) -> Generator[Mail, Mail, np.ndarray]:
        """The same sum from additive shares modulo 2^64. Nobody sees another peer's message; all
        see the sum."""
        others = _without(self.post.name, group)
        integers = Array(np.uint64, (self.size,))
        rest = ring.encode(self.shares[self.post.name] * y, self.post.name)
        shares = {
            name: np.frombuffer(os.urandom(8 * self.size), dtype=np.uint64) for name in others
        }
        phase = f"{SHARE} {number}"
        received = yield from self.post.exchange_all(
            phase, shares, Expected(phase, integers, others)
        )
        for name in others:
            rest = rest - shares[name] + received[name]
        phase = f"{PARTIAL} {number}"
        partial = yield from _from_all(self.post, phase, rest, group, integers)
        total = np.zeros(self.size, dtype=np.uint64)
        for part in partial.values():
            total += part
        return ring.decode(total)

    def _sum_of_groups(
        self, number: int, own: np.ndarray, groups: list[tuple[str, ...]], at: int
    ) -> Generator[Mail, Mail, np.ndarray]:
        """z, by way of the groups' leaders. Members compare their z, and so continue at the same
        time."""
        leaders = [group[number % len(group)] for group in groups]
        leader = leaders[at]
        leads = self.post.name == leader
        foreign = _without(leader, leaders)
        members = _without(leader, groups[at])
        relay, check = f"{RELAY} {number}", f"{CHECK} {number}"
        sums: list[np.ndarray]
        if leads:
            phase = f"{SUM} {number}"
            received = yield from self.post.exchange_all(
                phase, dict.fromkeys(foreign, own), Expected(phase, self._schema, foreign)
            )
            sums = [received[name] for name in foreign]
        else:
            schema = Parts((self._schema,) * len(foreign), list)
            received = yield from self.post.receive_all(Expected(relay, schema, (leader,)))
            sums = received[leader]
        z: np.ndarray = np.zeros(self.size)
        for part in [*sums[:at], own, *sums[at:]]:
            z += part
        content: Any = sums if leads else digest_of(z)
        mail = dict.fromkeys(_without(self.post.name, groups[at]), content)
        others = _without(self.post.name, members)
        yield from self._compared(relay if leads else check, mail, check, others, z)
        return z

    def _compared(
        self, phase: str, mail: Mail, awaited: str, names: tuple[str, ...], z: np.ndarray
    ) -> Generator[Mail, Mail, None]:
        """Send `mail`, and require the digest of the same z from each of `names`."""
        expected = Expected(awaited, Raw(DIGEST_BYTES), names)
        received = yield from self.post.exchange_all(phase, mail, expected)
        for name, digest in received.items():
            if digest != digest_of(z):
                # Both may be honest: a third peer can have told them different numbers.
                raise AggregationAbortedError(
                    f"{name} and {self.post.name} have different averages; any of "
                    f"{', '.join(self.peers)} may have sent them different numbers"
                )

    @property
    def _schema(self) -> Array:
        return Array(np.float64, (self.size,), finite=True)


def _from_all(
    post: Post, phase: str, own: Any, names: Sequence[str], schema: Schema
) -> Generator[Mail, Mail, Mail]:
    """Send `own` to all of `names`, and return everybody's contents, `own` included."""
    others = _without(post.name, names)
    mail = dict.fromkeys(others, own)
    received = yield from post.exchange_all(phase, mail, Expected(phase, schema, others))
    return received | {post.name: own}


def _without(name: str, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)
