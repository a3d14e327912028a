"""A small world for DP-ERM: silos with two classes, a bounded linear model, and rounds without a
run folder."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch

from fedpriv.accountants.pld import Pld
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.algorithms.dp_erm import DpErm
from fedpriv.data.allocate import Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.data.silo import SiloData
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.models.bounded_linear import BoundedLinear
from fedpriv.models.tasks import Classification, ConvexLoss
from fedpriv.runtime import prepare
from fedpriv.settings.experiment import Experiment
from fedpriv.settings.run_options import RunOptions
from fedpriv.trackers.base import Tracker
from fedpriv.training.optimizers import Sgd

ALGO = DpErm(
    local_steps=1,
    strong_convexity=0.1,
    smoothness=1.1,
    clip=2.0,
    noise_multiplier=0.0,
    calibration="given",
    broadcast_all=False,
    epsilon=1.0,
    rounds=20,
    delta=1e-5,
)
FEATURES = 4
CONVEX = ConvexLoss(0.5, BoundedLinear())  # two classes; 1-smooth with the bias
SECURE = SecAgg(cohort=12, candidates=16)


class FollowedProtocol(SecAgg):
    """A server that follows the protocol learns one sum with any numbers."""

    def require_safe(self, setting):
        pass


PAPER = FollowedProtocol(cohort=10, candidates=14)
"""The paper's numbers for its 100 silos."""


def silos_of(records, seed=0):
    """One silo for each number of `records`: two classes, features longer than the ball's
    radius.
    """
    rng = np.random.default_rng(seed)
    silos = []
    for n in records:
        x = torch.from_numpy(rng.normal(size=(n, FEATURES)).astype(np.float32)) * 3
        y = torch.from_numpy((x[:, 0].numpy() + rng.normal(size=n) > 0).astype(np.int64))
        silos.append(SiloData(x, y, np.zeros(1, dtype=np.int64), np.array([0, n])))
    return silos


def flipped(silo, record):
    """The same records, one with the other label: its clipped gradient turns round."""
    y = silo.y.clone()
    y[record] = 1 - y[record]
    return replace(silo, y=y)


@dataclass(frozen=True)
class Hospitals(DataSet):
    """The records of `silos`; all of a silo's have one owner. They are the test records, too."""

    silos: tuple[SiloData, ...] = field(default=(), compare=False)
    shape = (FEATURES,)
    outputs = 2
    natural_users = True

    @property
    def natural_silos(self):
        return len(self.silos)

    task = Classification()

    def load(self, streams):
        x, y = (
            np.concatenate([getattr(silo, part).numpy() for silo in self.silos])
            for part in ("x", "y")
        )
        silo = np.repeat(np.arange(len(self.silos)), [len(silo.x) for silo in self.silos])
        return Corpus(Records(x, y, silo, silo), Records(x, y))


def prepared(algo, silos, aggregation=Plain(), mechanism=None, seed=0, engine=InProcess()):  # noqa: B008
    """A prepared run in this process, with nothing to close. Rounds go through `rounds_of`."""
    exp = Experiment(
        options=RunOptions(
            rounds=algo.rounds,
            seed=seed,
            device="cpu",
            resume=None,
            randomness="simulation",
            evaluate_every=1,
            evaluate_training=False,
            checkpoint_every=1,
        ),
        data=Hospitals(silos=tuple(silos)),
        allocator=Natural(len(silos), len(silos)),
        model=BoundedLinear(),
        algo=algo,
        optimizer=Sgd(),
        mechanism=mechanism or Gaussian(algo.clip, algo.noise_multiplier),
        accountant=Pld(algo.delta),
        aggregation=aggregation,
        engine=engine,
        tracker=Tracker(),
    )
    return prepare(exp)


def kept(sim):
    """What silos remember between rounds, by the names of those that remember anything."""
    return {name: memory for name, memory in sim.session.checkpoints(sim.silos).items() if memory}


def rounds_of(sim, rounds):
    """Parameters after each round, who was in its sum, and its result. With `broadcast_all` nobody
    can tell who was in the sum, and everybody is named."""
    state = sim.state
    for round in range(1, rounds + 1):
        result = sim.run_round(sim.queries(round), state)
        state = result.state
        yield state.params, set(sim.silos) - set(kept(sim)), result
