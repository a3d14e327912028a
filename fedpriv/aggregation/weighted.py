"""Aggregations whose silos know their weights: the set-up, and a silo's weighted sum.

Trust. Each silo computes weights that depend on no record count itself, from public numbers. If
weights depend on counts, the server learns all counts and each silo learns its own users' weights.
A silo refuses weights that cannot be right. A cheating server can still move the sum by more than
the bound: it tells several silos too large a weight for the same user, each below 1.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from inspect import isgeneratorfunction
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import (
    BROADCAST,
    MESSAGE,
    SERVER,
    HelperProtocol,
    Respond,
    SiloProtocol,
    awaited_broadcast,
    encoding_of,
)
from fedpriv.crypto.x25519 import PublicKey
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, blaming
from fedpriv.parties.schema import Array, Parts, Raw, Schema, Table
from fedpriv.parties.signer import Signer
from fedpriv.rounds.contributors import Weighting, bounded_weights
from fedpriv.rounds.local_job import LocalJob, OneRow
from fedpriv.rounds.one_row import bounded_matrix
from fedpriv.rounds.query import Broadcast, Query, SetUpTask
from fedpriv.util.pieces import pieces
from fedpriv.util.work import Work

if TYPE_CHECKING:
    from torch import Tensor

COUNTS, WEIGHTS, KEY, KEYS = "counts", "weights", "key", "keys"
"""Phases of set-ups."""
MAX_RECORDS = 2**53
"""Most records of a unit in a silo."""
KEY_BYTES = 32
"""Length of a public key, for key agreement or for signatures."""
PART_BYTES = 2**22
"""Bytes of the contributions that are computed together, so that they stay in a processor's
cache."""
PINNED = "the roster holds the parties' own verification keys: each message is signed under them"
"""Assumption of every aggregation."""


@dataclass(repr=False)
class WeightedSilo(SiloProtocol):
    """A silo that weighs its contributions, sends messages and waits for no answer.

    name: of this silo.
    silos: names of all silos.
    weighting: how units are weighed.
    weights: of this silo's units, (n_units,) float64; known after the set-up.
    """

    name: str
    silos: tuple[str, ...]
    weighting: Weighting
    weights: np.ndarray = field(init=False)

    def setup(self, task: SetUpTask, counts: np.ndarray) -> Party:
        """Compute the weights, or send the counts and receive the weights. Raises
        AggregationAbortedError for weights that cannot be right."""
        if not self.weighting.needs_counts:
            self.weights = self.own_weights(counts)
            return
        post = task.post(self.name, self.signer)
        row = Array(np.float64, counts.shape, low=0.0, high=1.0)
        weights = yield from post.ask(COUNTS, SERVER, counts, (WEIGHTS, row))
        with blaming(SERVER):
            self.weighting.check_row(weights, counts)
        self.weights = weights

    def query(self, query: Query, respond: Respond) -> Party:
        """Answer the broadcast with `messages`."""
        post = query.post(self.name, self.signer)
        broadcast = yield from awaited_broadcast(post, query)
        if broadcast is not None:
            self.note_broadcast(post)
            yield from post.send(MESSAGE, (yield from self._made(query, respond(broadcast))))

    def note_broadcast(self, post: Post) -> None:
        """Note what this silo needs to know of the broadcast that has arrived."""

    def messages(self, query: Query, job: LocalJob) -> Mail | Generator[Work[Any], Any, Mail]:
        """Contents by receiver, made of a job whose training has ended. A generator gets a job that
        has yet to train, and can yield work that the engine does for many silos at once."""
        raise NotImplementedError

    def _made(self, query: Query, job: LocalJob) -> Generator[Work[Any], Any, Mail]:
        if not isgeneratorfunction(self.messages):
            job = yield from job.batched()
        made = self.messages(query, job)
        return (yield from made) if isinstance(made, Generator) else made

    def summed(self, query: Query, job: LocalJob) -> Generator[Work[Any], Any, np.ndarray]:
        """`noised_sum`, which the engine may compute together with those of other silos."""
        row = job.one_row if self._sums_as_usual(query) else None
        if row is None:
            return self.noised_sum(query, (yield from job.batched()))
        result: np.ndarray = yield NoisedSum(self, query, job, row)
        return result

    def _sums_as_usual(self, query: Query) -> bool:
        """Whether a subclass has changed neither the sum nor the encoding."""
        own = type(self).noised_sum, type(self).weighted_sum
        usual = own == (WeightedSilo.noised_sum, WeightedSilo.weighted_sum)
        return usual and type(query.encoding) in (NoneType, FixedPoint)

    def own_weights(self, counts: np.ndarray) -> np.ndarray:
        """The weights of units with these counts, where weights need no counts."""
        shape = (len(self.silos), len(counts))
        return self.weighting.own_weights(self.silos.index(self.name), shape)

    def weighted_sum(self, job: LocalJob) -> np.ndarray:
        """The silo's contributions times their weights, without noise, and earlier sums where the
        job repeats them: (size,) float64."""
        signal = np.zeros(len(job.noise))
        for block in job.contributions:
            _add_weighted(signal, self.weights[block.units], block.vectors)
        return signal if job.row is None else job.row(signal)

    def noised_sum(self, query: Query, job: LocalJob) -> np.ndarray:
        """The weighted sum and the silo's noise share, (size,): integers modulo R if the query has
        an encoding, else float64."""
        encoding = None if query.encoding is None else encoding_of(query, FixedPoint)
        signal = self.weighted_sum(job)
        if encoding is not None:
            return encoding.encode(signal, self.name, job.noise)
        if job.row is None:
            signal += job.noise  # in place: new memory costs more than the sum
            return signal
        noised: np.ndarray = signal + job.noise  # the row may be remembered
        return noised


@dataclass(frozen=True, eq=False)
class NoisedSum(Work[np.ndarray]):
    """`WeightedSilo.noised_sum` of a silo with at most one contribution. Those of many silos are
    made as rows of one matrix, with the same bits.

    silo: has the weights.
    query: of the sum.
    job: the silo's contribution and its noise share.
    row: the same, not yet computed.
    """

    silo: WeightedSilo
    query: Query
    job: LocalJob
    row: OneRow

    @property
    def batch_key(self) -> Hashable:
        return self.query.exchange.session, self.row.batch_key

    @property
    def nbytes(self) -> int:
        return 8 * self.query.size

    def run(self) -> np.ndarray:
        self.job.draw()
        return self.silo.noised_sum(self.query, self.job)

    @classmethod
    def run_batch(cls, works: Sequence[NoisedSum]) -> list[np.ndarray]:
        query = works[0].query
        at_once = max(1, PART_BYTES // (8 * max(1, query.size)))
        parts = [works[start : start + at_once] for start in range(0, len(works), at_once)]
        return [noised for part in parts for noised in _noised(part, query)]


def _noised(works: Sequence[NoisedSum], query: Query) -> Iterator[np.ndarray]:
    encoding = None if query.encoding is None else encoding_of(query, FixedPoint)
    places, vectors = bounded_matrix([work.row for work in works])
    contributions = dict(zip(places, vectors.numpy()))
    for place, work in enumerate(works):
        signal = np.zeros(query.size)
        user = work.row.user
        if place in contributions and user is not None:
            signal += work.silo.weights[user.unit] * contributions[place]
        noise = work.row.draw()
        if encoding is None:
            signal += noise
        yield signal if encoding is None else encoding.encode(signal, work.silo.name, noise)


def _add_weighted(signal: np.ndarray, weights: np.ndarray, vectors: Tensor) -> None:
    """Add weights (k,) float64 times vectors (k, d) float64 to signal (d,), in place."""
    import torch

    own = torch.from_numpy(weights).to(vectors.device)
    if len(vectors) > 1 or vectors.device.type != "cpu":
        signal += (own @ vectors).cpu().numpy()
        return
    for row, weight in zip(vectors, weights.tolist()):
        numbers = row.numpy()
        for piece in pieces(len(signal)):
            signal[piece] += weight * numbers[piece]


@dataclass
class WeighingServer(HelperProtocol):
    """A server that turns the silos' counts into weights, if weights depend on counts.

    silos: names of all silos.
    weighting: how units are weighed.
    counts: what silos have told so far, by name, (n_units,) int64 each.
    """

    silos: tuple[str, ...]
    weighting: Weighting
    counts: dict[str, np.ndarray] = field(default_factory=dict, init=False)

    def setup(self, task: SetUpTask, n_units: int) -> Party:
        post = task.post(SERVER, self.signer)
        weights = yield from self.weights_of_silos(n_units, post, task.silos or self.silos)
        if weights:
            yield from post.send(WEIGHTS, weights)

    def weights_of_silos(
        self, n_units: int, post: Post, present: tuple[str, ...]
    ) -> Generator[Mail, Mail, Mail]:
        """The weights of each silo that is present, from the counts of all silos; empty where silos
        compute them. Absent silos have the counts that they had before. Raises SilenceError for
        silos that have never told them, ValueError for weights beyond the sensitivity bound."""
        if not self.weighting.needs_counts:
            return {}
        schema = Array(np.int64, (n_units,), low=0, high=MAX_RECORDS)
        self.counts |= yield from post.receive_all(Expected(COUNTS, schema, present))
        post.require_all(self.silos, self.counts)
        table = self.weighting.weights(np.stack([self.counts[name] for name in self.silos]))
        weights = dict(zip(self.silos, bounded_weights(table)))
        return {name: weights[name] for name in present}


class KeyPassingServer(WeighingServer):
    """A server that also passes the silos' public keys on to all of them."""

    def setup(self, task: SetUpTask, n_units: int) -> Party:
        post = task.post(SERVER, self.signer)
        present = task.silos or self.silos
        weights = yield from self.weights_of_silos(n_units, post, present)
        keys = yield from received_keys(post, present, (WEIGHTS, weights))
        yield from post.send(KEYS, dict.fromkeys(present, keys))


SignedKey = tuple[bytes, bytes]
"""A public key that serves up to the next set-up, and its owner's signature on it."""


def signed_key_schema(signer: Signer) -> Parts:
    """Schema of a `SignedKey`."""
    return Parts((Raw(KEY_BYTES), Raw(signer.signature_bytes)))


def signed_key(post: Post, own: bytes) -> SignedKey:
    """The party's own key, for others to verify whoever passes it on."""
    return own, post.signer.sign((KEY, post.name, own))


def received_keys(
    post: Post, silos: tuple[str, ...], first: tuple[str, Mail] = ("", {})
) -> Generator[Mail, Mail, dict[str, SignedKey]]:
    """The server's part in the exchange of public keys: all silos' keys, by name.

    first: a phase, and the contents that the server sends in it before.

    Raises AggregationAbortedError, with its owner's name, for a key of low order.
    """
    expected = Expected(KEY, signed_key_schema(post.signer), silos)
    keys = yield from post.exchange_all(*first, expected)
    for name, (key, _) in keys.items():
        with blaming(name):
            PublicKey(key).require_order()
    return keys


def exchanged_keys(
    post: Post, own: bytes, silos: Collection[str]
) -> Generator[Mail, Mail, dict[str, bytes]]:
    """A silo's part in the exchange of public keys: all silos' keys, by name. Raises
    AggregationAbortedError for a key that its owner has not signed for this set-up."""
    schema = Table(silos, signed_key_schema(post.signer))
    keys = yield from post.ask(KEY, SERVER, signed_key(post, own), (KEYS, schema))
    return verified_keys(post, own, keys)


def verified_keys(post: Post, own: bytes, keys: dict[str, SignedKey]) -> dict[str, bytes]:
    """The keys that the server has passed on. Raises AggregationAbortedError that names the server
    for a key that its owner has not signed, and the owner for a key of low order."""
    with blaming(SERVER):
        for name, (key, signature) in keys.items():
            if not post.signer.verifies(name, signature, (KEY, name, key)):
                raise ValueError(f"{name} has not signed the key that it passes on")
        if keys[post.name][0] != own:
            raise ValueError(f"it holds another key for {post.name}")
    for name, (key, _) in keys.items():
        with blaming(name):
            PublicKey(key).require_order()
    return {name: key for name, (key, _) in keys.items()}


def answers_of(
    query: Query, silos: tuple[str, ...], broadcast: Broadcast, schema: Schema, signer: Signer
) -> Generator[Mail, Mail, list[np.ndarray]]:
    """The server's part of a query: send the broadcast, and return the messages in the order of
    `silos`. None may be missing."""
    post = query.post(SERVER, signer)
    down = dict.fromkeys(silos, broadcast)
    answers = yield from post.exchange_all(BROADCAST, down, Expected(MESSAGE, schema, silos))
    return [answers[name] for name in silos]


def added(answers: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of messages, in their order."""
    total: np.ndarray = np.zeros_like(answers[0])
    for answer in answers:
        total += answer
    return total
