"""The methods of Lowy et al. without noise and clipping, and the same on the small silos of
`erm_world`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from erm_world import prepared

from fedpriv.algorithms.prox_sgd import MinibatchSgd, ProxSgd
from fedpriv.algorithms.prox_svrg import ProxSvrg
from fedpriv.algorithms.proximal import ProximalOperator
from fedpriv.algorithms.spider import Spider
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.rounds.plan import Federation

COMMON = {
    "batch_size": 30,  # all records of a silo
    "global_lr": 0.3,
    "prox": "none",
    "prox_size": 1.0,
    "prox_group": 1,
    "released": "last",
    "clip": 1.0,
    "noise_multiplier": 0.0,
    "cohort": None,
    "least_cohort": None,
    "calibration": "given",
    "epsilon": 1.0,
    "observer": "server",
    "rounds": 20,
    "delta": 1e-5,
}
SAMPLED = COMMON | {"sampling": "without_replacement"}
TWO = SAMPLED | {"difference_noise": 2.0, "gradient_share": 0.5}
ONE_PASS = ProxSgd(**COMMON | {"batch_size": None})
MINIBATCH = MinibatchSgd(**SAMPLED)
SVRG = ProxSvrg(**TWO, inner_steps=3)
PL = replace(SVRG, epochs=2)
SPIDER = Spider(**TWO, variant="proximal", phase=4, anchor_batch_size=30)
ALTERNATE = replace(SPIDER, variant="alternate")
METHODS = [MINIBATCH, ONE_PASS, SVRG, PL, SPIDER, ALTERNATE]
CERTIFIED = {"calibration": "certified", "epsilon": 3.0, "rounds": 12, "batch_size": None}
FEDERATION = Federation(4, 4, 10, (100, 100, 80, 60))


def named(algo):
    return getattr(algo, "variant", "") + type(algo).__name__


def quiet(algo, silos, **words):
    """A run that neither clips nor noises."""
    return prepared(algo, silos, mechanism=NoMechanism(), **words)


def states_of(sim, rounds):
    """The state after each round."""
    for number in range(1, rounds + 1):
        result = sim.run_round(sim.queries(number), sim.state)
        assert not result.aborted
        sim.state = result.state
        yield sim.state


def proximal_descent(theta, gradient, algo, steps):
    """The models that `steps` steps of w = prox(w - eta gradient(w)) lead to."""
    operator = ProximalOperator(algo.prox, algo.prox_size, algo.prox_group)
    for _ in range(steps):
        theta = operator(theta - algo.global_lr * gradient(theta), algo.global_lr)
        yield np.array(theta)
