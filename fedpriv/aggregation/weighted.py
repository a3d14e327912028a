"""What aggregations have in common in which a silo knows its weights: the set-up, and a silo's
weighted sum.

Trust: weights that depend on no record count each silo computes itself, from public numbers. With
weights that do, the server learns all counts, and each silo its own users' weights. A silo refuses
weights that cannot be right; a server that tells several silos too much of one user, each time less
than 1, can still move the sum by more than the bound.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.aggregation.base import BROADCAST, MESSAGE, SERVER, HelperProtocol, SiloProtocol
from fedpriv.parties.party import Mail, Party
from fedpriv.parties.post import Expected, Post, blaming
from fedpriv.parties.schema import Array, Raw, Schema, Table
from fedpriv.rounds.plan import Observer, ThreatModel
from fedpriv.rounds.weighting import bounded_weights

if TYPE_CHECKING:
    from fedpriv.rounds.query import Broadcast, Query, SetUp, Update
    from fedpriv.rounds.weighting import Weighting


COUNTS, WEIGHTS, KEY, KEYS = "counts", "weights", "key", "keys"
"""Phases of set-ups."""
MOST = 2**53
"""Records of a unit in a silo."""
KEY_BYTES = 32
"""Of a public key, to agree on a seed or to check signatures."""


AUTHENTIC = "channels are authentic (TLS): messages are not signed"
"""What rests on the network where nobody signs."""


def server_trust(*, sees_messages: bool, assumptions: tuple[str, ...]) -> ThreatModel:
    """Who sees what where the server hands out weights, samples users and learns the sum.

    sees_messages: whether the server sees every silo's message too.
    assumptions: what all of it rests on.
    """
    released, server, silo = OBSERVERS
    observers = (
        Observer(released, sees_sample=False),
        Observer(
            server,
            sees_messages=sees_messages,
            sees_counts="the server learns every user's record counts",
        ),
        Observer(
            silo, sees_counts="a silo's weights reveal its users' records elsewhere", own_shares=1
        ),
    )
    return ThreatModel(observers, learners=(SERVER,), assumptions=assumptions)


@dataclass(repr=False)
class WeightedSilo(SiloProtocol):
    """A silo, one of `silos`, with weights (n_units,) float64."""

    name: str
    silos: tuple[str, ...]
    weighting: Weighting
    weights: np.ndarray = field(init=False)

    def setup(self, task: SetUp, counts: np.ndarray) -> Party:
        """Compute the weights, or show the counts and be told. Raises AggregationAbortedError for
        weights that cannot be right."""
        if not self.weighting.needs_counts:
            self.weights = self.weighting.own_weights(
                self.silos.index(self.name), (len(self.silos), len(counts))
            )
            return
        post = task.post(self.name, self.signer)
        row = Array(np.float64, counts.shape, low=0.0, high=1.0)
        heard = yield from post.exchange(
            COUNTS, {SERVER: counts}, Expected(WEIGHTS, row, (SERVER,))
        )
        post.require_all([SERVER], heard)
        with blaming(SERVER):
            self.weighting.check_row(heard[SERVER], counts)
        self.weights = heard[SERVER]

    def weighted_sum(self, update: Update) -> np.ndarray:
        """The silo's contributions times their weights, without noise: (size,) float64."""
        import torch

        signal = np.zeros(len(update.noise))
        for block in update.blocks:
            weights = torch.from_numpy(self.weights[block.units]).to(block.vectors.device)
            signal += (weights @ block.vectors).cpu().numpy()
        return signal


@dataclass
class WeighingServer(HelperProtocol):
    """A server that makes the weights of all `silos` from the counts that they show, if any depends
    on counts."""

    silos: tuple[str, ...]
    weighting: Weighting

    def setup(self, task: SetUp) -> Party:
        post = task.post(SERVER)
        weights = yield from self.weights_of_silos(task, post)
        if weights:
            yield from post.send(WEIGHTS, weights)

    def weights_of_silos(
        self, task: SetUp, post: Post, said: Mail | None = None
    ) -> Generator[Mail, Mail, Mail]:
        """Each silo's weights, made of the counts of all; none where silos compute them.

        said: stamped messages that are sent first. Raises ValueError for weights beyond the
            sensitivity bound.
        """
        if not self.weighting.needs_counts:
            if said:
                yield said
            return {}
        shown = Expected(COUNTS, Array(np.int64, (task.n_units,), low=0, high=MOST), self.silos)
        counts = yield from post.await_answers(said or {}, shown)
        post.require_all(self.silos, counts)
        table = self.weighting.weights(np.stack([counts[name] for name in self.silos]))
        return dict(zip(self.silos, bounded_weights(table)))


class KeyPassingServer(WeighingServer):
    """A server whose silos send a public key each once they have weights: everybody gets all
    keys.
    """

    def setup(self, task: SetUp) -> Party:
        post = task.post(SERVER)
        weights = yield from self.weights_of_silos(task, post)
        keys = yield from heard_keys(post, self.silos, (WEIGHTS, weights))
        yield from post.send(KEYS, dict.fromkeys(self.silos, keys))


def heard_keys(
    post: Post, silos: tuple[str, ...], said: tuple[str, Mail] = ("", {})
) -> Generator[Mail, Mail, dict[str, bytes]]:
    """What the server passes on: all silos' public keys, by name.

    said: a phase and what it sends in it first.
    """
    keys = yield from post.exchange(*said, Expected(KEY, Raw(KEY_BYTES), silos))
    post.require_all(silos, keys)
    return keys


def exchanged_keys(
    post: Post, own: bytes, silos: Collection[str]
) -> Generator[Mail, Mail, dict[str, bytes]]:
    """A silo's part in the exchange of public keys: everybody's, by name. Raises
    AggregationAbortedError when its own is not among them."""
    hear = Expected(KEYS, Table(silos, Raw(KEY_BYTES)), (SERVER,))
    heard = yield from post.exchange(KEY, {SERVER: own}, hear)
    post.require_all([SERVER], heard)
    keys: dict[str, bytes] = heard[SERVER]
    with blaming(SERVER):
        if keys[post.name] != own:
            raise ValueError(f"it holds another key for {post.name}")
    return keys


def sum_of_answers(
    query: Query, silos: tuple[str, ...], broadcast: Broadcast, kind: Schema
) -> Generator[Mail, Mail, np.ndarray]:
    """The server's part where the messages' own sum, in the order of `silos`, is the total: nobody
    may be missing."""
    post = query.post(SERVER)
    answers = yield from post.exchange(
        BROADCAST, dict.fromkeys(silos, broadcast), Expected(MESSAGE, kind, silos)
    )
    post.require_all(silos, answers)
    total: np.ndarray = np.zeros_like(answers[silos[0]])
    for name in silos:
        total += answers[name]
    return total
