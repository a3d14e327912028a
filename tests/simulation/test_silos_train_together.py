"""The silos of one process train in one stack, whatever the aggregation."""

import numpy as np
import pytest
from runs import experiment

from fedpriv.simulation import prepare
from fedpriv.stopwatch import Stopwatch
from fedpriv.training.silo_training import Ahead, SiloTraining

AGGREGATIONS = ["plain", "masked", "secagg", "private_weighting", "admm"]
"""Under `shuffle` no algorithm describes its training."""
OWN = {
    "private_weighting": ["algo.weighting=records", "aggregation.key_bits=1024"],
    "admm": ["aggregation.beyond_safe=true"],
}


def one_round(*words):
    """The parameters after a round, and what each silo reported."""
    with prepare(experiment("algo=uldp_avg", "algo.noise_multiplier=0", "trainer=stacked", *words)) as simulation:
        state, watch = simulation.state, Stopwatch()
        [query] = simulation.queries(1)
        total, reports = simulation.exchange(query, state, watch=watch, lines=[])
        params = simulation.algo.global_update(state, query, total, simulation.deployment).params
    return params - state.params, reports, watch.seconds["local_training"]


@pytest.fixture
def stacks(monkeypatch):
    """How many silos were trained together each time."""
    seen, together = [], SiloTraining.together
    monkeypatch.setattr(SiloTraining, "together", lambda works: seen.append(len(works)) or together(works))
    return seen


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_round_of_silos_in_one_stack_is_that_of_silos_apart(aggregation, stacks, monkeypatch):
    words = f"aggregation={aggregation}", *OWN.get(aggregation, ())
    moved, _, seconds = one_round(*words)
    assert stacks == [3]
    assert seconds > 0
    monkeypatch.setattr(Ahead, "waits", False)
    apart, _, _ = one_round(*words)
    assert stacks == [3]
    assert np.linalg.norm(apart) > 1e-3
    np.testing.assert_allclose(moved, apart, atol=1e-6 if aggregation != "admm" else 1e-5)


def test_training_counts_once_and_as_training():
    _, reports, seconds = one_round()
    assert all(report.seconds > 0 for report in reports)
    assert seconds == pytest.approx(sum(report.seconds for report in reports))
