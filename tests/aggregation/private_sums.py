"""Small federations under private weighting: the set-up, a round, everything that was said, and the exact sum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.paillier.keys import PrivateKey
from fedpriv.aggregation.private_weighting import PrivateWeighting
from fedpriv.aggregation.private_weighting_integers import integers_below
from fedpriv.algorithms.base import Contributions, Federation, Plan, Update
from fedpriv.algorithms.uldp import records
from fedpriv.engines.inprocess import InProcess
from fedpriv.engines.traffic import Traffic
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.streams import Streams


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
        self.silos = [f"silo{s}" for s in range(len(self.counts))]
        self.memory = {name: {} for name in [SERVER, *self.silos]}
        self.said = Traffic(keep=True)

    @property
    def code(self):
        silos, users = self.counts.shape
        federation = Federation(users, silos, self.noise.shape[1])
        return self.aggregation.code(silos, np.inf, federation, Gaussian(self.clip, self.noise_multiplier))

    @property
    def key(self):
        return PrivateKey(self.memory[SERVER]["p"], self.memory[SERVER]["q"])

    def ready(self):
        counts = dict(zip(self.silos, self.counts))
        InProcess().run(self.aggregation.setup(counts, records, True, self.memory), self.said)
        return self

    def plan(self, round=1, users=None, rate=1.0):
        cohort = tuple(range(len(self.silos)))
        return Plan(round, cohort, users, (), len(self.silos), self.code, self.streams, rate)

    def parties(self, round=1, users=None, rate=1.0, noise=None):
        def blocks(s):
            owned = np.flatnonzero(self.counts[s])
            for start in range(0, len(owned), 2):
                units = owned[start : start + 2]
                yield Contributions(units, torch.from_numpy(self.vectors[s, units]))

        noise = self.noise if noise is None else noise
        updates = {name: Update(blocks(s), noise[s]) for s, name in enumerate(self.silos)}
        return self.aggregation.exchange(self.plan(round, users, rate), updates, self.memory)

    def run(self, round=1, users=None, rate=1.0, noise=None):
        """The server's total."""
        return InProcess().run(self.parties(round, users, rate, noise), self.said)[SERVER]

    def weighted(self, users=None):
        """The sum without any rounding."""
        sampled = 1.0 if users is None else users
        weights = records(self.counts) * sampled
        return np.einsum("su,sud->d", weights, self.vectors) + self.noise.sum(0)

    def exact(self, round=1, users=None, dithered=True):
        """Slot totals as plain integers: C_LCM times the weighted sum of truncated contributions and floored noise,
        plus the dither, drawn again from the seeded stream."""
        layout = self.code.layout
        most = layout.coordinate_bound  # the last integer below clip * 2^f
        rows = np.clip(np.trunc(np.ldexp(self.vectors, layout.precision)), -most, most).astype(np.int64).astype(object)
        totals = self.counts.sum(axis=0)
        sum_ = np.zeros(self.noise.shape[1], dtype=object)
        for s, name in enumerate(self.silos):
            for u in np.flatnonzero(self.counts[s]):
                if users is None or users[u]:
                    sum_ += layout.lcm * int(self.counts[s, u]) // int(totals[u]) * rows[s, u]
            sum_ += layout.lcm * np.floor(np.ldexp(self.noise[s], layout.precision)).astype(np.int64).astype(object)
            if dithered:
                read = self.streams.secret("dither", round, name).bytes
                sum_ += np.array(integers_below(layout.lcm, len(sum_), read), dtype=object)
        return sum_.tolist()

    def messages(self, step=1):
        """The silos' ciphertexts of the last round, by silo, as numbers."""
        public, columns = self.key.public, self.code.layout.columns(self.noise.shape[1])
        raw = {letter.sender: letter.message for letter in self.said.transcript if letter.step == step}
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
