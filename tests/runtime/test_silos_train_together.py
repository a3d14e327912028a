"""The silos of one process train in one stack, whatever the aggregation."""

from dataclasses import replace
from weakref import ref

import numpy as np
import pytest
from runs import experiment

from fedpriv.aggregation.secagg.messages import SHARE
from fedpriv.rounds.local_job import LocalJob
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, drop
from fedpriv.training.silo_training import SiloTraining
from fedpriv.util.stopwatch import Stopwatch

AGGREGATIONS = ["plain", "masked", "secagg", "private_weighting", "admm"]
"""Under `shuffle` no algorithm describes its training."""
OWN = {
    "private_weighting": [
        *("algo.weighting=records", "aggregation.key_bits=512"),
        *("aggregation.n_max=24", "aggregation.count_cap=8"),
    ],
    "admm": ["aggregation.beyond_safe=true"],
}


ULDP = "algo=uldp_avg", "algo.noise_multiplier=0", "trainer=batched"


def in_turn(job):
    """As `LocalJob.batched`, without a batch."""
    return job
    yield


def one_round(*words, faults=()):
    """The parameters after a round, and what each silo reported."""
    exp = experiment(*words)
    with prepare(replace(exp, engine=Faulty(exp.engine, faults))) as prepared:
        state, watch = prepared.state, Stopwatch()
        [query] = prepared.queries(1)
        total, reports = prepared.exchange(query, state, watch=watch, lines=[])
        params = prepared.algo.global_update(state, query, total, prepared.plan).params
    return params - state.params, reports, watch.seconds["local_training"]


@pytest.fixture
def stacks(monkeypatch):
    """How many silos were trained together each time."""
    seen, run_batch = [], SiloTraining.run_batch
    spy = staticmethod(lambda works: seen.append(len(works)) or run_batch(works))
    monkeypatch.setattr(SiloTraining, "run_batch", spy)
    return seen


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_round_of_silos_in_one_stack_is_that_of_silos_apart(aggregation, stacks, monkeypatch):
    words = *ULDP, f"aggregation={aggregation}", *OWN.get(aggregation, ())
    moved, _, seconds = one_round(*words)
    assert stacks == [3]
    assert seconds > 0
    monkeypatch.setattr(LocalJob, "batched", in_turn)
    apart, _, _ = one_round(*words)
    assert stacks == [3]
    assert np.linalg.norm(apart) > 1e-3
    np.testing.assert_allclose(moved, apart, atol=1e-6 if aggregation != "admm" else 1e-5)


def test_under_secure_aggregation_a_silo_trains_when_its_message_is_asked_for(stacks):
    """Not before: what training comes to would lie in memory. silo1 is gone before it has shared
    its keys."""
    words = "aggregation=secagg", "preset.n_silos=5", "aggregation.cohort=4"
    moved, _, _ = one_round(*ULDP, *words, faults=(drop(sender="silo1", phase=SHARE, exchange=1),))
    assert stacks == [4]
    assert np.linalg.norm(moved) > 1e-3


@pytest.mark.parametrize("trainer", ["batched", "plain"])
@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_a_silo_lets_go_of_its_training_before_the_next_one_begins(
    aggregation, trainer, monkeypatch
):
    """Its buffers, in as many silos as there are, would fill the memory until the query ends."""
    alive, run = [], SiloTraining.run

    def noted(training):
        alive.append(sum(own() is not None for own in seen))
        seen.append(ref(training))
        return run(training)

    seen = []
    monkeypatch.setattr(SiloTraining, "run", noted)
    monkeypatch.setattr(SiloTraining, "batch_key", None)
    one_round(*ULDP[:2], f"trainer={trainer}", f"aggregation={aggregation}")
    assert alive == [0, 0, 0]


def test_training_counts_once_and_as_training():
    _, reports, seconds = one_round(*ULDP)
    assert all(report.seconds > 0 for report in reports)
    assert seconds == pytest.approx(sum(report.seconds for report in reports))
