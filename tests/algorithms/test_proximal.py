from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from hypothesis import given
from hypothesis import strategies as st
from lowy_world import PL, SVRG, quiet, states_of

from fedpriv.algorithms.proximal import ProximalOperator, Regulariser
from fedpriv.errors import ConfigError
from fedpriv.rounds.state import State
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

OPERATORS = [
    ProximalOperator("none"),
    BALL := ProximalOperator("ball", 1.5),
    BOX := ProximalOperator("box", 0.7),
    L1 := ProximalOperator("l1", 0.4),
    PAIRS := ProximalOperator("group_l1", 0.6, 2),
    ProximalOperator("group_l1", 0.6, 3),
]
VECTORS = st.lists(st.floats(-5, 5), min_size=5, max_size=5).map(np.array)
STEPS = st.floats(0.01, 3.0)


@pytest.mark.parametrize("operator", OPERATORS, ids=repr)
@given(v=VECTORS, w=VECTORS, step=STEPS)
def test_it_minimises_what_it_should(operator, v, w, step):
    """Against any other point: by the objective, and by the inequality that holds for convex f1
    alone."""
    x = operator(v, step)
    assert np.isfinite(operator.value(x))
    other = operator(w, step)  # inside the constraint

    def objective(z):
        return step * operator.value(z) + ((z - v) ** 2).sum() / 2

    assert objective(x) <= objective(other) - ((x - other) ** 2).sum() / 2 + 1e-9


def test_by_hand():
    v = np.array([3.0, -0.1, 0.4, -4.0, 0.0])
    np.testing.assert_allclose(L1(v, 0.5), [2.8, 0, 0.2, -3.8, 0])
    groups = ProximalOperator("group_l1", 2.0, 2)
    grouped = groups(np.array([3.0, 4.0, 0.3, 0.4, -2.0]), 0.5)
    np.testing.assert_allclose(grouped, [2.4, 3.2, 0, 0, -1.0])
    assert groups.value(np.array([3.0, 4.0, 0.0, 0.0, -2.0])) == 14
    assert (BOX.value(v), BALL.value(v), L1.value(v)) == (np.inf, np.inf, 3)


def test_the_gradient_mapping_is_the_gradient_without_f1_and_zero_at_a_lasso_solution():
    rng = np.random.default_rng(0)
    x, g = rng.normal(size=4), rng.normal(size=4)
    np.testing.assert_allclose(Regulariser(OPERATORS[0], 0.3).mapping(x, g), g)
    target = np.array([2.0, -0.1, 0.5, -3.0])  # of f0 = |x - target|^2 / 2
    best = np.array([1.6, 0.0, 0.1, -2.6])
    lasso = Regulariser(L1, 0.3)
    np.testing.assert_allclose(lasso.mapping(best, best - target), 0, atol=1e-12)
    assert np.abs(lasso.mapping(best + 0.1, best + 0.1 - target)).max() > 0.05


@pytest.mark.parametrize(
    ("words", "key"),
    [(("l2", 1.0, 1), "prox"), (("l1", 0.0, 1), "prox_size"), (("l1", 1.0, 0), "prox_group")],
)
def test_what_is_refused(words, key):
    with pytest.raises(ConfigError, match=rf"algo\.{key}="):
        ProximalOperator(*words)


# -- Prox-SVRG -------------------------------------------------------------------------------------


SILOS = silos_of([30, 30])


def test_an_epoch_has_one_gradient_and_a_difference_a_round():
    sim = quiet(SVRG, SILOS)
    asked = [[query.name for query in sim.queries(number)] for number in range(1, 8)]
    first, other = ["gradient", "difference"], ["difference"]
    assert asked == [first, other, other, first, other, other, first]


def test_the_anchor_is_kept_for_the_epoch():
    sim = quiet(SVRG, SILOS)
    start = sim.state.params
    states = list(states_of(sim, 5))
    for number, state in enumerate(states, start=1):
        expected = start if number <= 3 else states[2].params
        np.testing.assert_array_equal(state.slots["anchor"], expected)


def test_at_the_anchor_a_difference_is_exactly_zero():
    """Whatever the batch, and with dropout or clips: both gradients are the same."""
    sim = prepared(replace(SVRG, batch_size=5, clip=0.1), SILOS)
    _, difference = sim.queries(1)
    found, _ = sim.exchange(difference, sim.state, watch=Stopwatch(), lines=[])
    np.testing.assert_array_equal(found.vector, 0)


@pytest.mark.parametrize("released", ["last", "uniform"])
def test_a_run_starts_from_what_the_last_one_put_out(released):
    sim = quiet(replace(PL, released=released), SILOS)
    states = list(states_of(sim, 12))
    ends = states[5]
    np.testing.assert_array_equal(ends.params, ends.slots["output"])
    np.testing.assert_array_equal(states[6].slots["anchor"], ends.params)


def test_a_uniform_output_is_uniform():
    """Reservoir sampling over 4 iterates, which are 1, 2, 3, 4 here; 400 seeds."""
    sim, chosen = quiet(SVRG, SILOS[:1]), np.zeros(4)
    algo = replace(SVRG, released="uniform")
    for seed in range(400):
        plan = replace(sim.plan, streams=Streams(seed))
        state = State(np.zeros(10), {"output": np.zeros(10)})
        for number in range(1, 5):
            direction = np.full(10, -1 / algo.global_lr)
            state = algo.stepped(state, direction, round=number, seen=number, plan=plan)
        chosen[round(state.slots["output"][0]) - 1] += 1
    assert (np.abs(chosen - 100) < 4.5 * np.sqrt(75)).all()
