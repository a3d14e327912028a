"""Small federations under private weighting: the set-up, a query, everything that was said, and the
exact sum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from parties_of_generators import Protocols, run
from queries import query_for

from fedpriv.aggregation.base import MESSAGE, SERVER
from fedpriv.aggregation.private_weighting.aggregation import PrivateWeighting
from fedpriv.crypto.uniform_integers import integers_below
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.contributors import RecordWeighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import Broadcast
from fedpriv.training.contributions import Contributions
from fedpriv.util.streams import Streams


def small(**changes):
    return PrivateWeighting(**({"key_bits": 512, "n_max": 20, "precision": 20} | changes))


@dataclass
class World:
    """counts: (silos, users). vectors: (silos, users, d), each within `clip`. noise: (silos, d)."""

    aggregation: PrivateWeighting
    counts: np.ndarray
    vectors: np.ndarray
    noise: np.ndarray
    clip: float = 1.0
    noise_multiplier: float = 5.0
    streams: Streams = field(default_factory=lambda: Streams(0, system=True))

    def __post_init__(self):
        self.protocols = Protocols(
            self.aggregation, tuple(range(len(self.counts))), RecordWeighting()
        )
        self.silos = self.protocols.names
        self.said = Traffic(keep=True)

    @property
    def server(self):
        return self.protocols[SERVER]

    @property
    def key(self):
        return self.server.key

    @property
    def encoding(self):
        return self.query().encoding

    def setup(self):
        return self.protocols.setup(self.counts)

    def ready(self):
        run(self.setup(), self.said)
        return self

    def query(self, round=1, sampled=None, rate=1.0, place=0):
        silos, users, size = self.vectors.shape
        return query_for(
            self.aggregation,
            silos,
            round,
            place=place,
            streams=self.streams,
            users=users,
            size=size,
            mechanism=Gaussian(self.clip, self.noise_multiplier),
            sampled=sampled,
            user_rate=rate,
        )

    def updates(self, noise=None):
        def blocks(s):
            owned = np.flatnonzero(self.counts[s])
            for start in range(0, len(owned), 2):
                units = owned[start : start + 2]
                yield Contributions(units, torch.from_numpy(self.vectors[s, units]))

        noise = self.noise if noise is None else noise
        return {name: LocalJob(blocks(s), noise[s]) for s, name in enumerate(self.silos)}

    def parties(self, round=1, sampled=None, rate=1.0, noise=None, place=0):
        query = self.query(round, sampled, rate, place)
        return self.protocols.query(query, self.updates(noise), Broadcast({}, sampled))

    def run(self, round=1, sampled=None, rate=1.0, noise=None, place=0):
        """The server's total."""
        return run(self.parties(round, sampled, rate, noise, place), self.said)[SERVER]

    def weighted(self, users=None):
        """The sum without any rounding."""
        sampled = 1.0 if users is None else users
        weights = RecordWeighting().weights(self.counts) * sampled
        return np.einsum("su,sud->d", weights, self.vectors) + self.noise.sum(0)

    def exact(self, round=1, users=None, dithered=True, purpose="dither"):
        """Slot totals as plain integers: C_LCM times the weighted sum of truncated contributions
        and floored noise, plus the dither, drawn again from the seeded stream."""
        layout = self.encoding.layout
        most = layout.coordinate_bound  # the last integer below clip * 2^f
        rows = (
            np.clip(np.trunc(np.ldexp(self.vectors, layout.precision)), -most, most)
            .astype(np.int64)
            .astype(object)
        )
        totals = self.counts.sum(axis=0)
        total = np.zeros(self.noise.shape[1], dtype=object)
        for s, name in enumerate(self.silos):
            for u in np.flatnonzero(self.counts[s]):
                if users is None or users[u]:
                    total += layout.lcm * int(self.counts[s, u]) // int(totals[u]) * rows[s, u]
            total += layout.lcm * np.floor(np.ldexp(self.noise[s], layout.precision)).astype(
                np.int64
            ).astype(object)
            if dithered:
                read = self.streams.secret(purpose, round, name).bytes
                total += np.array(integers_below(layout.lcm, len(total), read), dtype=object)
        return total.tolist()

    def heard(self, phase):
        """Who said what to whom in a phase of all exchanges so far: (sender, receiver, content)."""
        letters = [letter for letter in self.said.transcript if letter.message.phase == phase]
        return [(letter.sender, letter.receiver, letter.message.content) for letter in letters]

    def messages(self):
        """The silos' ciphertexts of the last round, by silo, as numbers."""
        public, columns = self.key.public, self.encoding.layout.columns(self.noise.shape[1])
        raw = {sender: content for sender, _, content in self.heard(MESSAGE)}
        return {name: public.from_bytes(raw[name], columns) for name in self.silos}


def random_world(seed=0, silos=3, users=4, size=5, most=6, **changes):
    """Every user has a record somewhere; some are missing from some silos."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most + 1, (silos, users))
    counts[rng.integers(0, silos, users), np.arange(users)] = rng.integers(1, most + 1, users)
    vectors = rng.normal(size=(silos, users, size))
    vectors /= np.maximum(1, np.linalg.norm(vectors, axis=2, keepdims=True))
    settings = {key: changes.pop(key) for key in ("streams", "clip") if key in changes}
    return World(small(**changes), counts, vectors, rng.normal(size=(silos, size)), **settings)
