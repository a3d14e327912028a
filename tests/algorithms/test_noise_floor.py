"""A proximal-PL problem under noise: linear convergence, then a floor that the noise's variance
predicts."""

from dataclasses import replace

import numpy as np
import pytest
from lowy_world import MINIBATCH

from fedpriv.algorithms.gradient_method import GRADIENT
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.query import Total
from fedpriv.rounds.state import State
from fedpriv.util.streams import Streams


class Known:
    """What `global_update` needs of a query and a plan."""

    round = 1
    name = GRADIENT
    streams = Streams(0)


@pytest.mark.parametrize("step", [0.1, 0.4])
def test_a_quadratic_converges_linearly_to_the_floor_that_the_variance_predicts(step):
    """f(w) = sum of a_j w_j^2 / 2 in every silo, of which none but 2 of 4 dimensions curve: PL, not
    strongly convex.

    With silos' noise of variance v_i on their mean gradients a step adds eta^2 mean(v_i) / N to
    every coordinate, so that curved ones settle at E f = sum of a_j / 2 * eta^2 v / (1 - (1 - eta
    a_j)^2). 2,000 problems side by side.
    """
    curvature, silos, size = np.array([1.0, 0.5, 0.0, 0.0]), 3, 10
    algo, mechanism = replace(MINIBATCH, global_lr=step), Gaussian(1.0, 4.0)
    values, curved = np.zeros((2000, 150)), np.tile(curvature, 2000)
    rng = np.random.default_rng(0)
    state = State(np.full(curved.size, 10.0), {"output": np.zeros(curved.size)})
    for number in range(values.shape[1]):
        noise = sum(
            mechanism.noise_share(curved.size, 1, rng, sensitivity=1 / size) for _ in range(silos)
        )
        total = Total(silos * curved * state.params + noise, ("silo0", "silo1", "silo2"))
        state = algo.global_update(state, Known, total, Known)
        values[:, number] = (curved * state.params**2).reshape(2000, 4).sum(axis=1) / 2
    variance = (4.0 / size) ** 2 / silos
    shrunk = (1 - step * curvature[:2]) ** 2
    floor = (curvature[:2] / 2 * step**2 * variance / (1 - shrunk)).sum()
    assert values[:, 100:].mean() == pytest.approx(floor, rel=0.1)
    early = values[:, :10].mean(axis=0)
    expected = sum(a / 2 * 100 * (1 - step * a) ** (2 * np.arange(1, 11)) for a in curvature[:2])
    np.testing.assert_allclose(early, expected, rtol=0.1, atol=10 * floor)
