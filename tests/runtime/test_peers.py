"""Runs without a server: every silo holds the state, makes its own broadcast and runs the global
update. After an aggregation without a sum: newly trained models, what peers remember, and the peers
that are left."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import ConfigError
from fedpriv.rounds.query import Exchange
from fedpriv.runs.epsilon_forecast import EpsilonForecast
from fedpriv.runtime import prepare
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.faults import Faulty, drop
from fedpriv.topology.groups import group_sizes
from fedpriv.util.stopwatch import Stopwatch

SERVED = (*SMALL, "preset.n_silos=9", "rounds=6")
NINE = (*SERVED, "aggregation=admm")
FEW = ("aggregation.preset=null", "aggregation.iterations=4", "aggregation.beyond_safe=true")
"""Where what the averages come to is not the point."""
CONVERGED = ("aggregation.preset=null", "aggregation.iterations=32", "aggregation.beyond_safe=true")


def rounds_of(exp, *faults, rounds=3):
    """Results of the rounds; the first exchange is the set-up, the third is round 2."""
    with prepare(replace(exp, engine=Faulty(InProcess(), faults))) as prepared:
        state, results = prepared.state, []
        for number in range(1, rounds + 1):
            results.append(prepared.run_round(prepared.queries(number), state))
            state = results[-1].state
        return results, prepared


@pytest.mark.parametrize(
    "algo",
    [
        ("algo=scaffold",),
        ("algo=uldp_avg", "algo.user_rate=0.5"),
        ("algo=uldp_avg_w",),
    ],
    ids=lambda words: words[0],
)
def test_peers_end_where_a_server_would(algo):
    results, _ = rounds_of(experiment(*NINE, *algo, *CONVERGED), rounds=2)
    served, _ = rounds_of(experiment(*SERVED, *algo), rounds=2)
    found, reference = results[-1].state.params, served[-1].state.params
    # Sums that differ by 1e-16 may start the next training one float32 number apart, where they lie
    # between two.
    np.testing.assert_allclose(found, reference, rtol=1e-7, atol=1e-7 * np.abs(reference).max())
    assert {row["party"] for result in results for row in result.traffic} == {
        f"silo{k}" for k in range(9)
    }


@pytest.mark.filterwarnings("ignore:round 2. continuing without silo3")
@pytest.mark.parametrize("least", [None, 5])
def test_a_silo_that_goes_on_from_another_state_is_named_and_left_out_if_the_others_can(least):
    words = () if least is None else (*CONVERGED, f"aggregation.least_peers={least}")
    with prepare(experiment(*NINE, "algo=fedavg", "rounds=3", *words)) as prepared:
        silo = prepared.session.participants["silo3"]
        silo.state = silo.state.with_params(silo.state.params + 1e-9)
        result = prepared.run_round(prepared.queries(1), prepared.state)
        assert "silo3 has told another" in result.aborted
        assert prepared.standing.losses == {1: {"silo3": result.aborted}}
        result = prepared.run_round(prepared.queries(2), result.state)
        assert result.aborted is None
        assert prepared.standing.absent == (frozenset() if least is None else {"silo3"})


@dataclass(frozen=True)
class Moody(FedAvg):
    """Its global update is another one in every call."""

    def global_update(self, state, query, total, plan):
        return state.with_params(state.params + np.random.default_rng().random(len(state.params)))


def test_a_global_update_that_differs_between_silos_ends_the_run():
    algo = Moody(local_epochs=1, batch_size=100, local_lr=0.1, global_lr=1.0)
    exp = experiment(*NINE, algo=algo)
    with prepare(exp) as prepared, pytest.raises(RuntimeError, match="hold different states"):
        prepared.run_round(prepared.queries(1), prepared.state)


def test_certified_against_peers_only_with_noise():
    for words, finite in (("algo=fedavg", False), ("algo=uldp_naive", True)):
        rows = EpsilonForecast.of(experiment(*NINE, words)).rows_at([1])
        assert {np.isfinite(row.certified) for row in rows if row.observer == "silo"} == {finite}
        assert {row.observer for row in rows} == {"released model", "silo"}


def mean_after(exp, params, epochs, silos):
    """The mean of what these silos make of `params` in so many epochs, without any exchange."""
    words = ("aggregation=plain",)
    algo = replace(exp.algo, local_epochs=epochs)
    with prepare(
        replace(exp, algo=algo, aggregation=experiment(*SMALL, *words).aggregation)
    ) as prepared:
        state, ends = prepared.state.with_params(params), []
        for silo in silos:
            [query] = prepared.queries(1)
            query = replace(query, invited=(silo,), n_summed=1)
            prepared.rehearse(query)
            total, _ = prepared.exchange(query, state, watch=Stopwatch(), lines=[])
            ends.append(params + total.vector)
    return np.mean(ends, axis=0)


@pytest.mark.parametrize("step", [0, 8])
def test_full_batches_train_an_epoch_longer_so_that_the_models_are_new(step):
    """In the last step everybody may have had the sum: they come back to the state that all agree
    on."""
    exp = experiment(*NINE, *CONVERGED, "algo=fedavg", "algo.local_epochs=2")
    results, prepared = rounds_of(exp, drop(exchange=2, step=step, sender="silo3"))
    assert [result.aborted is None for result in results] == [True, False, True]
    assert "silo3" in results[1].aborted
    np.testing.assert_array_equal(results[1].state.params, results[0].state.params)
    assert {row["query"] for row in results[2].traffic} == {"setup", "update"}
    expected = mean_after(exp, results[0].state.params, 3, range(9))
    np.testing.assert_allclose(results[2].state.params, expected, rtol=1e-5, atol=1e-7)
    assert prepared.standing.failures == 0


@dataclass(frozen=True)
class Stubborn(FedAvg):
    """It trains the same models again."""

    def recipe(self, silo, query):
        return super().recipe(silo, replace(query, exchange=Exchange()))


@pytest.mark.parametrize("keep", [False, True])
def test_models_that_training_makes_again_are_refused(keep):
    """Also where silos remember something, and go back to what they remembered before."""
    algo = Stubborn(
        local_epochs=2, batch_size=1000, local_lr=0.1, global_lr=1.0, keep_optimizer=keep
    )
    exp = experiment(*NINE, "optimizer=adam", algo=algo)
    results, _ = rounds_of(exp, drop(exchange=2, step=4, sender="silo3"))
    assert results[0].aborted is None
    assert "silo3" in results[1].aborted
    assert "aborted aggregation" in results[2].aborted


def test_what_silos_remember_of_a_query_without_a_sum_is_undone():
    exp = experiment(*NINE, "algo=fedavg", "optimizer=adam", "algo.keep_optimizer=true")
    faults = (drop(exchange=2, step=8, sender="silo3", receiver=None),)
    with prepare(replace(exp, engine=Faulty(InProcess(), faults))) as prepared:
        first = prepared.run_round(prepared.queries(1), prepared.state)
        before = {name: dict(state) for name, state in prepared.standing.silo_states.items()}
        second = prepared.run_round(prepared.queries(2), first.state)
        assert second.aborted
        prepared.set_up(3, [], second.state)
        for name, participant in prepared.session.participants.items():
            for slot, value in participant.checkpoint().items():
                np.testing.assert_array_equal(value, before[name][slot])
        assert prepared.run_round(prepared.queries(3), second.state).aborted is None


def test_scaffold_goes_on_as_well():
    exp = experiment(*NINE, *CONVERGED, "algo=scaffold")
    results, prepared = rounds_of(exp, drop(exchange=2, step=8, sender="silo3"), rounds=4)
    assert [result.aborted is None for result in results] == [True, False, True, True]
    controls = [prepared.standing.silo_states[f"silo{k}"]["control"] for k in range(9)]
    control = results[-1].state.slots["control"]
    np.testing.assert_allclose(control, np.mean(controls, axis=0), rtol=1e-9, atol=1e-12)


def test_a_resumed_run_is_the_same_run():
    """Also after an aborted round, of which the checkpoint knows."""
    exp = experiment(*NINE, *FEW, "algo=fedopt")
    faults = (drop(exchange=2, step=4, sender="silo3"),)
    whole, _ = rounds_of(exp, *faults)
    with prepare(replace(exp, engine=Faulty(InProcess(), faults))) as prepared:
        state = prepared.state
        for number in (1, 2):
            state = prepared.run_round(prepared.queries(number), state).state
        saved = prepared.arrays(state)
    with prepare(exp, saved) as prepared:
        result = prepared.run_round(prepared.queries(3), prepared.state)
        np.testing.assert_array_equal(result.state.params, whole[2].state.params)
        assert "failed" not in prepared.arrays(result.state)


LAST = 16
"""More exchanges than any run here has; each fault is held against every message."""


def silent_from(exchange, sender="silo3"):
    return tuple(drop(exchange=number, sender=sender) for number in range(exchange, LAST))


@pytest.mark.filterwarnings("ignore:round 3")
def test_training_goes_on_with_the_peers_that_are_left_in_groups_made_anew():
    exp = experiment(*NINE, *CONVERGED, "algo=fedavg", "aggregation.least_peers=5")
    results, prepared = rounds_of(exp, *silent_from(2), rounds=4)
    assert [result.aborted is None for result in results] == [True, False, True, True]
    assert prepared.standing.absent == {"silo3"}
    left = [k for k in range(9) if k != 3]
    expected = mean_after(exp, results[1].state.params, exp.algo.local_epochs + 1, left)
    np.testing.assert_allclose(results[2].state.params, expected, rtol=1e-5, atol=1e-7)
    assert group_sizes(8, 3) == (4, 4)
    asked = [row for row in results[3].traffic if row["step"] == 0]
    assert {row["party"]: row["messages"] for row in asked} == {f"silo{k}": 3 for k in left}


@pytest.mark.parametrize(
    "words",
    [(), ("aggregation.least_peers=9",)],
    ids=["not asked to", "too few are left"],
)
def test_otherwise_every_later_round_ends_without_a_sum(words):
    exp = experiment(*NINE, *FEW, "algo=fedavg", *words)
    results, prepared = rounds_of(exp, *silent_from(2))
    assert [result.aborted is None for result in results] == [True, False, False]
    assert "silo3" in results[2].aborted
    assert not prepared.standing.absent


def test_peers_whose_groups_would_give_models_away_do_not_go_on():
    """Eight peers fall into two groups of four, and have no second partition: two iterations would
    determine models."""
    exp = experiment(*NINE, "algo=fedavg", "aggregation.least_peers=5")
    assert not exp.aggregation.continues_with(8)
    assert exp.aggregation.continues_with(9)
    results, _ = rounds_of(exp, *silent_from(2))
    assert [result.aborted is None for result in results] == [True, False, False]


@pytest.mark.filterwarnings("ignore:round 3")
def test_with_fewer_peers_noise_shares_are_larger():
    exp = experiment(*NINE, *FEW, "algo=uldp_naive", "aggregation.least_peers=5")
    _, prepared = rounds_of(exp, *silent_from(2))
    [query] = prepared.queries(4)
    addressed = prepared.addressed(query)
    assert (query.n_summed, addressed.n_summed, len(addressed.invited)) == (8, 8, 8)


@pytest.mark.parametrize("least", [3, 30])
def test_noise_shares_of_the_fewest_peers_fit_the_range_of_messages(least):
    words = ("preset.n_silos=30", "preset.n_users=30", f"aggregation.least_peers={least}")
    exp = experiment(*NINE, *FEW, *words, "randomness=system", "algo=uldp_sgd")
    with prepare(exp) as prepared:
        [query] = prepared.queries(1, prepared.silos[:least])
    assert query.n_summed == least
    noise = query.mechanism.noise_bound(least)
    assert noise < query.encoding.bound < 2 * noise


@pytest.mark.filterwarnings("ignore:round 3")
@pytest.mark.parametrize(
    "words", [("algo=uldp_avg_w",), ("algo=fedavg", "aggregation.average=records")], ids=str
)
def test_weights_from_counts_are_those_of_the_peers_that_are_left(words):
    exp = experiment(*NINE, *FEW, *words, "aggregation.least_peers=5")
    with prepare(replace(exp, engine=Faulty(InProcess(), silent_from(2)))) as prepared:
        state = prepared.state
        # Round 3 loses the peer after it was charged; with noise it releases nothing then.
        for number in (1, 2, 3, 4):
            result = prepared.run_round(prepared.queries(number), state)
            state = result.state
        assert result.aborted is None
        protocols = {name: party.protocol for name, party in prepared.session.participants.items()}
        left = [protocols[name] for name in prepared.silos]
        assert len(left) == 8
        assert all(set(protocol.shares) == set(prepared.silos) for protocol in left)
        if words[0] == "algo=uldp_avg_w":
            counts = np.stack([protocol.weights for protocol in left]).sum(axis=0)
            np.testing.assert_allclose(counts[counts > 0], 1.0, rtol=1e-12)
        else:
            assert sum(left[0].shares.values()) == pytest.approx(1.0)


def test_methods_that_draw_their_silos_go_on_without_lost_peers():
    """Round 2 loses peers after it was charged, and so does round 3 before any message."""
    noise = ("algo.calibration=given", "algo.noise_multiplier=5", "algo.observer=silo")
    exp = experiment(*NINE, *FEW, "algo=spider", *noise, "aggregation.least_peers=3")
    faults = [drop(exchange=n, sender=f"silo{k}") for n in range(3, LAST) for k in (3, 4, 5, 6)]
    results, prepared = rounds_of(exp, *faults, rounds=6)
    assert [result.aborted is None for result in results][-2:] == [True, True]
    assert len(prepared.silos) == 5
    [query, *_] = prepared.queries(6)
    assert query.n_summed == 5


def test_peers_do_not_leave_peers_out():
    """Those would go on from an old model."""
    noise = ("algo.calibration=given", "algo.noise_multiplier=5", "algo.observer=silo")
    with pytest.raises(ConfigError, match=r"algo\.least_cohort=5: null: nobody would send"):
        experiment(*NINE, *CONVERGED, "algo=minibatch_sgd", *noise, "algo.least_cohort=5")
