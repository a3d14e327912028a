"""Sums of records' vectors in the shuffle model: silos randomise, a shuffler mixes bits, a server
counts them.

A. Lowy, A. Ghafelebashi, M. Razaviyayn, Private non-convex federated learning without a trusted
server, section 1 and Algorithms 4 and 5 (P_1D and P_vec). Each record's vector becomes bits,
coordinate by coordinate (`encoding.levels`), and each silo adds its noise bits. The shuffler
permutes all bits of a coordinate. After that only the number of ones is left, so parties send this
number instead of the bits: the same information in 8 bytes. A silo adds up the bits of its own
records before it sends them, so that its shuffler sees less than one that gets every record's bits.

Trust.

- The shuffler follows the protocol: it adds the messages of all silos, and sends the sum to the
  server and nothing to anybody else. The server learns the sum.
- The shuffler sees each silo's ones. Against it only that silo's own noise counts. A server that
  colludes with the shuffler, or an attacker who reads the channels to it, sees as much.
- A silo that leaves its noise out takes it from all others: `mechanism.silent` says how many may.
- A missing message ends the query.
- Every message is signed. Channels must be confidential, such as TLS.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.base import (
    BROADCAST,
    MESSAGE,
    SERVER,
    Aggregation,
    HelperProtocol,
    encoding_of,
)
from fedpriv.aggregation.weighted import PINNED, WeighingServer, WeightedSilo
from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.record_gradients import record_form
from fedpriv.encoding.levels import Coins, Levels
from fedpriv.errors import ConfigError
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected
from fedpriv.parties.schema import Array
from fedpriv.rounds.contributors import Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Observer, ThreatModel
from fedpriv.rounds.query import Broadcast, Query, Total
from fedpriv.util.streams import branch
from fedpriv.util.work import Work

if TYPE_CHECKING:
    from fedpriv.mechanisms.base import Mechanism

SHUFFLER = "shuffler"
SHUFFLED = "shuffled"
"""Phase in which the shuffler sends its sum to the server."""


@dataclass(frozen=True)
class Shuffle(Aggregation):
    """The number of ones among the bits of all silos, for each coordinate."""

    def adapt(self, algo: Algorithm) -> Algorithm:
        records = record_form(algo)
        if records is None:
            raise ConfigError(
                "aggregation",
                "shuffle",
                f"needs another algorithm: a contribution of {algo.label} is not one record's",
            )
        return records

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> Levels:
        encoding = mechanism.counting().count_encoding(n_summed)
        encoding.most(max(federation.silo_records, default=1))  # raises when counts do not fit
        return encoding

    helpers = (SERVER, SHUFFLER)

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
            PINNED,
            "channels are confidential (TLS)",
        )
        return ThreatModel(observers, learners=(SERVER,), assumptions=rests_on, cheating=None)

    def silo(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> ShuffledSilo:
        return ShuffledSilo(name, silos, weighting)

    def helper(self, name: str, silos: tuple[str, ...], weighting: Weighting) -> HelperProtocol:
        return Shuffler() if name == SHUFFLER else CountingServer(silos, weighting)


class ShuffledSilo(WeightedSilo):
    """Randomises its units' contributions and counts the ones among their bits."""

    def messages(self, query: Query, job: LocalJob) -> Generator[Work[Any], Any, Mail]:
        return {SHUFFLER: self.ones(query, (yield from job.batched()))}

    def ones(self, query: Query, job: LocalJob) -> np.ndarray:
        """The number of ones among the silo's bits of each coordinate, (size,) int64."""
        levels = level_encoding(query)
        total = levels.noise_counts(job.noise)
        missing = query.exchange.n_units
        for block in job.contributions:
            vectors = block.vectors.double().cpu().numpy()
            weights = self.weights[block.units]
            if not (weights == 1).all():
                vectors = vectors * weights[:, None]
            total += levels.counts(vectors, self._coins(query, block.units))
            missing -= len(vectors)
        # Units without a contribution send the zero vector.
        total += missing * (levels.levels // 2)
        return total

    def _coins(self, query: Query, units: np.ndarray) -> Coins:
        """Random numbers for rounding. Each unit's depend on no other unit. They may be public: no
        certificate relies on them."""
        keys = query.streams.unit_keys(query.stream("levels"), query.round, self.name, units)

        def coins(positions: np.ndarray, columns: slice) -> np.ndarray:
            words = branch(keys[positions, None], np.arange(columns.start, columns.stop))
            words >>= np.uint64(11)
            uniform: np.ndarray = words * 2.0**-53
            return uniform

        return coins


@dataclass
class Shuffler(HelperProtocol):
    """Adds the silos' ones: a permutation of their bits shows no more."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        post = query.post(SHUFFLER, self.signer)
        silos = query.silos
        ones = yield from post.receive_all(Expected(MESSAGE, ones_of(query, parties=1), silos))
        yield from post.send(SHUFFLED, {SERVER: np.sum([ones[name] for name in silos], axis=0)})


class CountingServer(WeighingServer):
    """Sends queries to the silos and decodes the shuffler's sum."""

    def query(self, query: Query, broadcast: Broadcast) -> Party:
        post = query.post(SERVER, self.signer)
        silos = query.silos
        down = dict.fromkeys(silos, broadcast)
        expected = Expected(SHUFFLED, ones_of(query, parties=len(silos)), (SHUFFLER,))
        ones = yield from post.exchange_all(BROADCAST, down, expected)
        return Total(level_encoding(query).decode(ones[SHUFFLER], query.exchange.n_units), silos)


def ones_of(query: Query, *, parties: int) -> Array:
    """Schema of the ones of `parties` silos: no more than there are bits."""
    most = parties * level_encoding(query).most(query.exchange.n_units)
    return Array(np.int64, (query.size,), low=0, high=most)


def level_encoding(query: Query) -> Levels:
    """How the query's contributions become levels."""
    return encoding_of(query, Levels)
