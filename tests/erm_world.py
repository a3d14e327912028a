"""A small world for DP-ERM: silos with two classes, a bounded linear model, and rounds without a run folder."""

from __future__ import annotations

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.plain import Plain
from fedpriv.aggregation.secagg import SecAgg
from fedpriv.algorithms.base import Federation, Local
from fedpriv.algorithms.dp_erm import DpErm
from fedpriv.convexity import ConvexLoss
from fedpriv.data.silo import SiloData
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.models.bounded_linear import BoundedLinear
from fedpriv.simulation import Simulation
from fedpriv.streams import Streams
from fedpriv.tasks import Classification

ALGO = DpErm(1, 0.1, 1.1, 2.0, 0.0, "given", False, 1.0, 20, 1e-5)
FEATURES = 4
CONVEX = ConvexLoss(0.5, BoundedLinear())  # two classes; 1-smooth with the bias
SECURE = SecAgg(cohort=10, candidates=14)


def silos_of(records, seed=0):
    """One silo for each number of `records`: two classes, features longer than the ball's radius."""
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


def simulation(algo, silos, aggregation=Plain(), mechanism=None, seed=0, engine=InProcess()):  # noqa: B008
    """A prepared run. Rounds go through `rounds_of`."""
    sizes = tuple(len(silo.x) for silo in silos)
    federation = Federation(len(silos), len(silos), 2 * FEATURES + 2, sizes, CONVEX)
    algo, streams = replace(algo, fewest=min(sizes)), Streams(seed)
    mechanism = mechanism or Gaussian(algo.clip, algo.noise_multiplier)
    mechanism = algo.calibrated(mechanism, federation, aggregation, streams)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BoundedLinear().build((FEATURES,), 2)
    theta = torch.cat([p.detach().flatten() for p in model.parameters()]).double().numpy()
    locals_ = [
        Local(s, data, copy.deepcopy(model), Classification(), mechanism, streams) for s, data in enumerate(silos)
    ]
    memory = {name: {} for name in [SERVER, *(local.name for local in locals_)]}
    counts = {local.name: algo.counts(local, federation) for local in locals_}
    InProcess().run(aggregation.setup(counts, algo.weights, algo.needs_counts, memory))
    options = SimpleNamespace(rounds=algo.rounds)
    exp = SimpleNamespace(mechanism=mechanism, aggregation=aggregation, engine=engine, streams=streams, options=options)
    return Simulation(exp, algo, federation, model, theta, locals_, None, None, "cpu", memory)


def rounds_of(sim, rounds):
    """Parameters after each round, and who was in its sum."""
    theta, everybody = sim.theta0, {local.name for local in sim.locals}
    for round in range(1, rounds + 1):
        result = sim.run_round(sim.plan(round), theta)
        theta = result.theta
        yield theta, everybody - set(sim.kept), result
