"""Sums of records' vectors in the shuffle model: silos randomise, a shuffler mixes bits, a server
counts them.

A. Lowy, A. Ghafelebashi, M. Razaviyayn, Private non-convex federated learning without a trusted
server, section 1 and Algorithms 4 and 5 (P_1D and P_vec). Each record's vector becomes bits,
coordinate by coordinate (`encoding.levels`), and each silo adds its noise bits. The shuffler
permutes all bits of a coordinate, which leaves of them how many are ones; so parties send that
number instead of the bits, which is the same information in 8 bytes. A silo adds up the bits of its
own records before it sends them: its shuffler sees less than one who gets every record's bits.

Trust: the shuffler follows the protocol, adds the messages of all silos, and tells nobody but the
server, and it the sum alone. The server learns the sum. The shuffler sees each silo's ones: against
it only that silo's own noise counts. Whoever sees both, or reads the channels to the shuffler, is a
shuffler too. A silo that does not add its noise takes it from all others: `mechanism.silent` says
how many may. A silo's message that is missing ends the query.

Nobody signs. Channels have to be authentic and confidential, such as TLS: one who could put
messages in a silo's place would leave its noise out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.base import (
    BROADCAST,
    MESSAGE,
    SERVER,
    Aggregation,
    HelperProtocol,
    awaited_broadcast,
    invited_silos,
    trained,
)
from fedpriv.aggregation.weighted import WeighingServer, WeightedSilo
from fedpriv.encoding.levels import Coins, Levels
from fedpriv.errors import ConfigError
from fedpriv.parties.post import Expected
from fedpriv.parties.schema import Array
from fedpriv.rounds.plan import Observer, ThreatModel
from fedpriv.rounds.query import Total
from fedpriv.util.streams import branch

if TYPE_CHECKING:
    from fedpriv.aggregation.base import Respond
    from fedpriv.algorithms.base import Algorithm
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.parties.party import Party
    from fedpriv.rounds.plan import Federation
    from fedpriv.rounds.query import Broadcast, Query, SetUp, Update
    from fedpriv.rounds.weighting import Weighting

SHUFFLER = "shuffler"
SHUFFLED = "shuffled"
"""Phase in which the server hears of the shuffler."""


@dataclass(frozen=True)
class Shuffle(Aggregation):
    """The ones among the bits of all silos, each coordinate's for itself."""

    def serving(self, algo: Algorithm) -> Algorithm:
        records = algo.of_records()
        if records is None:
            raise ConfigError(
                "aggregation",
                "shuffle",
                f"another: a contribution of {algo.label} is not one record's",
            )
        return records

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> Levels:
        encoding = mechanism.count_encoding(n_summed)
        encoding.most(max(federation.silo_records, default=1))  # raises when counts do not fit
        return encoding

    @property
    def helpers(self) -> tuple[str, ...]:
        return (SERVER, SHUFFLER)

    def threat_model(self) -> ThreatModel:
        released, server, silo = OBSERVERS
        observers = (
            Observer(released, sees_sample=False),
            Observer(server),
            Observer(silo, own_shares=1),
            Observer(SHUFFLER, sees_messages=True),
        )
        rests_on = (
            "the shuffler adds the bits of all silos and does not collude with the server",
            "authentic and confidential channels",
        )
        return ThreatModel(observers, learners=(SERVER,), assumptions=rests_on)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ShuffledSilo:
        return ShuffledSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        return Shuffler() if name == SHUFFLER else CountingServer(silos, weighting)


class ShuffledSilo(WeightedSilo):
    """Randomises its units' contributions and counts the ones among their bits."""

    def query(self, query: Query, respond: Respond) -> Party:
        post = query.post(self.name)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is not None:
            yield from post.send(
                MESSAGE, {SHUFFLER: self.ones(query, (yield from trained(respond(broadcast))))}
            )

    def ones(self, query: Query, update: Update) -> np.ndarray:
        """How many of the silo's bits of each coordinate are ones, (size,) int64."""
        levels = level_encoding(query)
        total = levels.noise_counts(update.noise)
        missing = query.n_units
        for block in update.blocks:
            vectors = block.vectors.double().cpu().numpy()
            weights = self.weights[block.units]
            if not (weights == 1).all():
                vectors = vectors * weights[:, None]
            total += levels.counts(vectors, self._coins(query, block.units))
            missing -= len(vectors)
        # The others send the zero vector.
        total += missing * (levels.levels // 2)
        return total

    def _coins(self, query: Query, units: np.ndarray) -> Coins:
        """Each unit's own, whoever else is there. Rounding may be public: no certificate counts on
        it."""
        keys = query.streams.unit_keys(query.stream("levels"), query.round, self.name, units)

        def coins(positions: np.ndarray, columns: slice) -> np.ndarray:
            words = branch(keys[positions, None], np.arange(columns.start, columns.stop))
            words >>= np.uint64(11)
            uniform: np.ndarray = words * 2.0**-53
            return uniform

        return coins


@dataclass
class Shuffler(HelperProtocol):
    """Adds the silos' ones, which is what a permutation of their bits shows."""

    def setup(self, task: SetUp) -> Party:
        yield {}

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        post = query.post(SHUFFLER)
        silos = invited_silos(query)
        heard = yield from post.receive(Expected(MESSAGE, ones_of(query, parties=1), silos))
        post.require_all(silos, heard)
        yield from post.send(SHUFFLED, {SERVER: np.sum([heard[name] for name in silos], axis=0)})


class CountingServer(WeighingServer):
    """Sends queries down, and makes the sum of the ones that the shuffler counts."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        post = query.post(SERVER)
        silos = invited_silos(query)
        levels = level_encoding(query)
        down = dict.fromkeys(silos, broadcast)
        kind = ones_of(query, parties=len(silos))
        heard = yield from post.exchange(BROADCAST, down, Expected(SHUFFLED, kind, (SHUFFLER,)))
        post.require_all([SHUFFLER], heard)
        return Total(levels.decode(heard[SHUFFLER], query.n_units), silos)


def ones_of(query: Query, *, parties: int) -> Array:
    """What `parties` silos' bits can hold: no more ones than there are bits."""
    return Array(
        np.int64, (query.size,), low=0, high=parties * level_encoding(query).most(query.n_units)
    )


def level_encoding(query: Query) -> Levels:
    """How the query's contributions become levels."""
    if not isinstance(query.encoding, Levels):
        raise ValueError(f"bits are counted of levels, not of {query.encoding}")
    return query.encoding
