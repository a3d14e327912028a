"""Runs without a server: every silo holds the state, makes its own broadcast and runs the global
update."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.messages import size_of
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.faults import Faulty, drop

NINE = (*SMALL, "preset.n_silos=9", "rounds=3")
CONVERGED = (
    "aggregation=admm",
    "aggregation.preset=null",
    "aggregation.iterations=32",
    "aggregation.beyond_safe=true",
)


def params_after(exp, rounds=3):
    with prepare(exp) as prepared:
        state, results = prepared.state, []
        for number in range(1, rounds + 1):
            results.append(prepared.run_round(prepared.queries(number), state))
            state = results[-1].state
        return state.params, results


@pytest.mark.parametrize(
    "algo",
    [
        ("algo=fedavg",),
        ("algo=fedopt",),
        ("algo=scaffold",),
        ("algo=uldp_avg", "algo.user_rate=0.5"),
        ("algo=uldp_avg_w",),
    ],
    ids=lambda words: words[0],
)
def test_peers_end_where_a_server_would(algo):
    found, results = params_after(experiment(*NINE, *algo, *CONVERGED))
    reference, _ = params_after(experiment(*NINE, *algo))
    # Sums that differ by 1e-16 may start the next training one float32 number apart, where they lie
    # between two.
    np.testing.assert_allclose(found, reference, rtol=1e-7, atol=1e-7 * np.abs(reference).max())
    assert {row["party"] for result in results for row in result.traffic} == {
        f"silo{k}" for k in range(9)
    }


def test_traffic_is_counted_to_the_byte_and_silos_are_sent_no_model():
    """Beside federated averaging with a server: a vector from each silo, and one down to each."""
    exp = experiment(*NINE, "algo=fedavg", "aggregation=admm")
    _, [result] = params_after(exp, 1)
    with prepare(exp) as prepared:
        size = prepared.plan.federation.n_parameters
    head = 8 * size
    per_step = {
        step: sum(r["bytes"] for r in result.traffic if r["step"] == step) for step in range(9)
    }
    counted = {
        step: sum(r["messages"] for r in result.traffic if r["step"] == step) for step in range(9)
    }
    assert [counted[step] for step in range(9)] == [18, 6, 6, 12, 18, 6, 6, 12, 72]
    for step, vectors in ((0, 1), (1, 1), (2, 2), (4, 1), (5, 1), (6, 2)):
        overhead = per_step[step] - counted[step] * vectors * head
        assert 0 < overhead <= counted[step] * 250
        assert overhead % counted[step] == 0
    _, [served] = params_after(experiment(*NINE, "algo=fedavg"), 1)
    down = [row for row in served.traffic if row["party"] == "server"]
    up = [row for row in served.traffic if row["party"] != "server"]
    assert sum(row["messages"] for row in down) == sum(row["messages"] for row in up) == 9
    assert sum(row["bytes"] for row in down) > 9 * head
    assert size_of(np.zeros(size)) > head


def test_a_silo_that_goes_on_from_another_state_ends_the_run():
    with prepare(experiment(*NINE, "algo=fedavg", "aggregation=admm")) as prepared:
        silo = prepared.session.participants["silo3"]
        silo.state = silo.state.with_params(silo.state.params + 1e-9)
        with pytest.raises(RuntimeError, match="hold different states"):
            prepared.run_round(prepared.queries(1), prepared.state)


@dataclass(frozen=True)
class Moody(FedAvg):
    """Its global update is another one in every call."""

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + np.random.default_rng().random(len(state.params)))


def test_a_global_update_that_differs_between_silos_ends_the_run():
    algo = Moody(local_epochs=1, batch_size=100, local_lr=0.1, global_lr=1.0)
    exp = experiment(*NINE, "aggregation=admm", algo=algo)
    with prepare(exp) as prepared, pytest.raises(RuntimeError, match="hold different states"):
        prepared.run_round(prepared.queries(1), prepared.state)


@pytest.mark.parametrize("step", [0, 4, 8])
def test_an_aborted_round_is_skipped_and_the_next_begins_with_all_in_one_state(step):
    """In the last step some silos may have had the sum: they come back to the state that all agree
    on."""
    exp = experiment(*NINE, "algo=fedavg", "aggregation=admm", "preset.batch_size=7")
    # The first exchange is the set-up, the third is round 2.
    lost = Faulty(InProcess(), (drop(exchange=2, step=step, sender="silo3", receiver=None),))
    params, results = params_after(replace(exp, engine=lost))
    assert [result.aborted is None for result in results] == [True, False, True]
    assert "silo3" in results[1].aborted
    np.testing.assert_array_equal(results[1].state.params, results[0].state.params)
    assert {row["query"] for row in results[2].traffic} == {"setup", "update"}
    assert np.any(params != results[0].state.params)


def test_a_resumed_run_is_the_same_run(tmp_path):
    words = (*NINE, "algo=fedopt", "aggregation=admm")
    whole, _ = params_after(experiment(*words))
    with prepare(experiment(*words)) as prepared:
        result = prepared.run_round(prepared.queries(1), prepared.state)
        checkpoint = prepared.arrays(result.state)
    with prepare(experiment(*words), checkpoint) as prepared:
        state = prepared.state
        for number in (2, 3):
            state = prepared.run_round(prepared.queries(number), state).state
    np.testing.assert_array_equal(state.params, whole)


def test_certified_against_peers_only_with_noise(tmp_path):
    import pandas as pd

    for words, finite in (("algo=fedavg", False), ("algo=uldp_naive", True)):
        folder = tmp_path / words
        train(experiment(*NINE, words, "aggregation=admm", "rounds=1"), "", folder)
        table = pd.read_csv(folder / "epsilon.csv")
        peers = table[(table["round"] == 1) & (table["observer"] == "silo")]
        assert bool(np.isfinite(peers["certified"]).all()) == finite
        assert set(table["observer"]) == {"released model", "silo"}
