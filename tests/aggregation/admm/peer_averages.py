"""Averages of given vectors by peers, with every letter kept."""

from dataclasses import dataclass, field

import numpy as np
import torch
from parties_of_generators import Protocols, run
from queries import query_for

from fedpriv.aggregation.admm.aggregation import Admm
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.parties.traffic import Traffic
from fedpriv.rounds.contributors import OwnWeighting, Weighting
from fedpriv.rounds.local_job import LocalJob
from fedpriv.training.contributions import Contributions
from fedpriv.util.streams import Streams

SIZE = 4


def admm(**settings) -> Admm:
    """Iterations at rho = 1, whatever they give away."""
    plain = (
        {}
        if "preset" in settings
        else {"preset": None, "iterations": settings.pop("iterations", 30)}
    )
    return Admm(**{"beyond_safe": True, **plain, **settings})


@dataclass
class Peers:
    """n peers after a set-up. records: of each. weighting: of one user in each."""

    aggregation: Admm
    n: int
    records: tuple[int, ...] = ()
    weighting: Weighting = field(default_factory=OwnWeighting)
    streams: Streams = Streams(3)
    letters: list = field(default_factory=list)

    def __post_init__(self):
        self.names = tuple(f"silo{k}" for k in range(self.n))
        self.set_up()

    def set_up(self):
        counts = np.diag(np.array(self.records or (1,) * self.n, dtype=np.int64))
        self.protocols = Protocols(self.aggregation, tuple(range(self.n)), self.weighting)
        run(self.protocols.setup(counts))

    def query(self, serial=(1, 0), size=SIZE):
        return query_for(
            self.aggregation,
            self.n,
            serial[0],
            place=serial[1],
            streams=self.streams,
            users=self.n,
            size=size,
            mechanism=NoMechanism(),
        )

    def parties(self, vectors, serial=(1, 0)):
        def update(k):
            block = Contributions(np.array([k]), torch.from_numpy(vectors[k : k + 1]))
            return LocalJob(iter([block]), np.zeros(vectors.shape[1]))

        updates = {name: update(k) for k, name in enumerate(self.names)}
        return self.protocols.query(self.query(serial, vectors.shape[1]), updates)

    def average(self, vectors, serial=(1, 0), engine=InProcess()):  # noqa: B008
        """What every peer ends with, and the letters of this exchange."""
        traffic = Traffic(keep=True)
        try:
            learned = run(self.parties(vectors, serial), traffic, engine)
        finally:
            self.letters += traffic.transcript
        found = [total.vector / self.n for total in learned.values()]
        assert len(found) == self.n
        assert all(np.array_equal(found[0], other) for other in found[1:])
        return found[0], traffic


def vectors(n, seed=0, size=SIZE):
    return np.random.default_rng(seed).normal(0, 0.05, (n, size))
