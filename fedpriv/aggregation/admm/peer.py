"""A peer's part in an average by ADMM.

Phases of iteration i: "y i" inside groups; with masks "share i" and "partial i" instead; "sum i"
between the groups' leaders, "relay i" from each leader to its group, "check i" inside groups: what
everybody makes of it must be the same. In the end "done": all peers compare their averages. Whoever
misses a message, or gets one that is no honest peer's, says nothing more, and so does everybody who
waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.admm.averaging import Averaging
from fedpriv.aggregation.base import invited_silos, trained
from fedpriv.aggregation.weighted import COUNTS, KEY, KEY_BYTES, MOST, WeightedSilo
from fedpriv.crypto.signatures import Ed25519Signer, SigningKey, VerificationKey
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.messages import digest_of
from fedpriv.parties.party import Mail
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.schema import Array, Raw, Series
from fedpriv.rounds.query import Broadcast, Total
from fedpriv.rounds.weighting import bounded_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedpriv.aggregation.admm.penalty import Penalty
    from fedpriv.aggregation.base import Respond
    from fedpriv.parties.party import Party
    from fedpriv.parties.schema import Schema
    from fedpriv.rounds.query import Query, SetUp, Update
    from fedpriv.topology.groups import Partitions

Y = "y"
SHARE = "share"
PARTIAL = "partial"
SUM = "sum"
RELAY = "relay"
CHECK = "check"
DONE = "done"
DIGEST_BYTES = 32


@dataclass(frozen=True)
class Procedure:
    """What all peers go by.

    topology: the partitions of any number of peers.
    by_records: the average's weights.
    ring: of masked messages; None: they are not masked.
    """

    topology: Callable[[int], Partitions]
    penalty: Penalty
    iterations: int
    tolerance: float | None
    by_records: bool
    ring: FixedPoint | None


@dataclass(repr=False)
class AdmmPeer(WeightedSilo):
    """shares: how much the vector of each peer that is there counts in the average, by name; they
    add up to 1.

    spent: the last query that it took part in.
    under_way: digest of the vector that it sends messages about.
    done: of the last one whose average it has.
    given_up: of those whose aggregation was aborted.
    """

    procedure: Procedure
    signer: Ed25519Signer = field(init=False)
    shares: Mapping[str, float] = field(init=False)
    spent: tuple[int, int] = (0, 0)
    under_way: bytes | None = None
    done: bytes | None = None
    given_up: set[bytes] = field(default_factory=set)

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        """Exchange verification keys, and counts if anything depends on them."""
        self.spent = (0, 0)
        present = task.silos or self.silos
        self.given_up |= {
            digest for digest in (self.under_way, self.done if task.aborted else None) if digest
        }
        post = task.post(self.name)
        key = SigningKey.generate()
        others = self._others(present)
        own = key.verification_key.raw
        keys = yield from post.exchange(
            KEY, dict.fromkeys(others, own), Expected(KEY, Raw(KEY_BYTES), others)
        )
        post.require_all(others, keys)
        registry = {name: VerificationKey(raw) for name, raw in (keys | {self.name: own}).items()}
        self.signer = Ed25519Signer(key, registry)
        self.shares = dict.fromkeys(present, 1 / len(present))
        if not (self.weighting.needs_counts or self.procedure.by_records):
            self.weights = self.weighting.own_weights(
                self.silos.index(self.name), (len(self.silos), len(counts))
            )
            return
        post = task.post(self.name, self.signer)
        kind = Array(np.int64, counts.shape, low=0, high=MOST)
        heard = yield from post.exchange(
            COUNTS, dict.fromkeys(others, counts), Expected(COUNTS, kind, others)
        )
        post.require_all(others, heard)
        shown = dict.fromkeys(self.silos, np.zeros_like(counts)) | heard | {self.name: counts}
        table = np.stack([shown[name] for name in self.silos])
        self.weights = bounded_weights(self.weighting.weights(table))[self.silos.index(self.name)]
        if self.procedure.by_records:
            totals = table.sum(axis=1)
            shares = dict(zip(self.silos, (totals / max(totals.sum(), 1)).tolist()))
            self.shares = {name: shares[name] for name in present}

    def query(self, query: Query, respond: Respond) -> Party:
        if query.serial <= self.spent:
            raise RuntimeError(
                f"{self.name} has taken part in round {query.round}, query {query.place} already"
            )
        self.spent = query.serial
        vector = self._vector((yield from trained(respond(Broadcast({})))), query)
        self._begin(vector)
        dual = query.streams.secret(query.stream("dual variable"), query.round, self.name).random(
            query.size
        )
        post = query.post(self.name, self.signer)
        peers = invited_silos(query)
        partitions = self.procedure.topology(len(peers))
        exchange = _Exchange(
            post, self.procedure, peers, self.shares, size=query.size, partitions=partitions
        )
        z = yield from exchange.run(Averaging(vector, dual))
        self.under_way, self.done = None, self.under_way
        return Total(len(query.invited) * z, invited_silos(query))

    def _vector(self, update: Update, query: Query) -> np.ndarray:
        vector: np.ndarray
        if query.encoding is None:
            vector = self.weighted_sum(update) + update.noise
            return vector
        if not isinstance(query.encoding, FixedPoint):
            raise ValueError(f"peers' messages lie on a fixed-point grid, not on {query.encoding}")
        # Noise that protects somebody is whole grid steps; the sum of both is a float64 without
        # another rounding.
        whole = query.encoding.encode(self.weighted_sum(update), self.name, update.noise)
        vector = query.encoding.decode(whole)
        return vector

    def _begin(self, vector: np.ndarray) -> None:
        """Note what messages are about. Raises AggregationAbortedError for the vector of an aborted
        aggregation: what is known from there may determine it together with another one of it.
        Zeros protect nothing."""
        digest = digest_of(vector)
        if vector.any() and digest in self.given_up:
            raise AggregationAbortedError(
                f"{self.name} would send again what an aborted aggregation was about"
            )
        self.under_way = digest

    def _others(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name != self.name)


@dataclass
class _Exchange:
    """One aggregation.

    peers: all, in an order that everybody knows; the topology's numbers are places in it.
    """

    post: Post
    procedure: Procedure
    peers: tuple[str, ...]
    shares: Mapping[str, float]
    size: int
    partitions: Partitions

    def run(self, own: Averaging) -> Generator[Mail, Mail, np.ndarray]:
        """The average, once all peers have the same."""
        for iteration in range(1, self.procedure.iterations + 1):
            rho = self.procedure.penalty.at(iteration)
            z = yield from self._iteration(iteration, own.message(rho))
            moved = own.take(z, rho)
            if self.procedure.tolerance is not None and moved <= self.procedure.tolerance:
                break
        others = self._others(self.peers)
        yield from self._compared(
            DONE, dict.fromkeys(others, digest_of(own.z)), DONE, others, own.z
        )
        return own.z

    def _iteration(self, number: int, y: np.ndarray) -> Generator[Mail, Mail, np.ndarray]:
        partition = self.partitions[(number - 1) % len(self.partitions)]
        groups = [tuple(self.peers[place] for place in group) for group in partition]
        at = next(place for place, group in enumerate(groups) if self.post.name in group)
        if self.procedure.ring is None:
            own = yield from self._group_sum(number, y, groups[at])
        else:
            own = yield from self._masked_sum(number, y, groups[at], self.procedure.ring)
        if len(groups) == 1:
            return own
        return (yield from self._sum_of_groups(number, own, groups, at))

    def _group_sum(
        self, number: int, y: np.ndarray, group: tuple[str, ...]
    ) -> Generator[Mail, Mail, np.ndarray]:
        """The weighted sum of the group's messages, added in the same order by all of its
        members.
        """
        heard = yield from self._from_all(f"{Y} {number}", y, group, self._vector)
        total: np.ndarray = np.zeros(self.size)
        for name in group:
            total += self.shares[name] * heard[name]
        return total

    def _masked_sum(
        self, number: int, y: np.ndarray, group: tuple[str, ...], ring: FixedPoint
    ) -> Generator[Mail, Mail, np.ndarray]:
        """The same from additive shares modulo 2^64: nobody sees another's message, all see their
        sum."""
        others = self._others(group)
        integers = Array(np.uint64, (self.size,))
        rest = ring.encode(self.shares[self.post.name] * y, self.post.name)
        shares = {
            name: np.frombuffer(os.urandom(8 * self.size), dtype=np.uint64) for name in others
        }
        for share in shares.values():
            rest = rest - share
        heard = yield from self.post.exchange(
            f"{SHARE} {number}", shares, Expected(f"{SHARE} {number}", integers, others)
        )
        self.post.require_all(others, heard)
        for share in heard.values():
            rest = rest + share
        partial = yield from self._from_all(f"{PARTIAL} {number}", rest, group, integers)
        total = np.zeros(self.size, dtype=np.uint64)
        for part in partial.values():
            total += part
        return ring.decode(total)

    def _sum_of_groups(
        self, number: int, own: np.ndarray, groups: list[tuple[str, ...]], at: int
    ) -> Generator[Mail, Mail, np.ndarray]:
        """z, by way of the groups' leaders. Members compare what they make of it, and so go on at
        the same time."""
        leaders = [group[number % len(group)] for group in groups]
        leader = leaders[at]
        foreign = tuple(name for name in leaders if name != leaders[at])
        members = tuple(name for name in groups[at] if name != leader)
        if self.post.name == leader:
            hear = Expected(f"{SUM} {number}", self._vector, foreign)
            heard = yield from self.post.exchange(
                f"{SUM} {number}", dict.fromkeys(foreign, own), hear
            )
            self.post.require_all(foreign, heard)
            sums = [heard[name] for name in foreign]
        else:
            relay = Expected(f"{RELAY} {number}", Series(len(foreign), self._vector), (leader,))
            heard = yield from self.post.receive(relay)
            self.post.require_all([leader], heard)
            sums = heard[leader]
        z: np.ndarray = np.zeros(self.size)
        for part in [*sums[:at], own, *sums[at:]]:
            z += part
        check = f"{CHECK} {number}"
        leads = self.post.name == leader
        content: Any = sums if leads else digest_of(z)
        mail = dict.fromkeys(members if leads else self._others(groups[at]), content)
        yield from self._compared(
            f"{RELAY} {number}" if leads else check, mail, check, self._others(members), z
        )
        return z

    def _from_all(
        self, phase: str, value: np.ndarray, group: tuple[str, ...], kind: Schema
    ) -> Generator[Mail, Mail, Mail]:
        """What each of the group says in a phase, this peer's own `value` among it."""
        others = self._others(group)
        heard = yield from self.post.exchange(
            phase, dict.fromkeys(others, value), Expected(phase, kind, others)
        )
        self.post.require_all(others, heard)
        return heard | {self.post.name: value}

    def _compared(
        self, phase: str, mail: Mail, awaited: str, names: tuple[str, ...], z: np.ndarray
    ) -> Generator[Mail, Mail, None]:
        """Send `mail`, and hear from `names` the digest of the same z."""
        heard = yield from self.post.exchange(
            phase, mail, Expected(awaited, Raw(DIGEST_BYTES), names)
        )
        self.post.require_all(names, heard)
        for name, digest in heard.items():
            if digest != digest_of(z):
                raise AggregationAbortedError(
                    f"{name} and {self.post.name} have come to different averages"
                )

    def _others(self, group: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in group if name != self.post.name)

    @property
    def _vector(self) -> Array:
        return Array(np.float64, (self.size,), finite=True)
