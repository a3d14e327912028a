from dataclasses import replace

import numpy as np
import pytest
from erm_world import prepared, silos_of
from lowy_world import PL, SVRG, quiet, states_of

from fedpriv.rounds.state import State
from fedpriv.util.stopwatch import Stopwatch
from fedpriv.util.streams import Streams

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
