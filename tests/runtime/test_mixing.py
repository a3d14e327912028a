"""Messages that repeat the sums of earlier rounds: what the model learns, what silos remember, and
who sees it."""

from dataclasses import replace

import numpy as np
import pytest
from runs import experiment

from fedpriv.engines.inprocess import InProcess
from fedpriv.rounds.mixing import ESTIMATES, RAW, ROUNDS, Past
from fedpriv.runs.checkpoint import Checkpoint
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.runtime.standing import SILO
from fedpriv.testing.faults import Faulty, drop

AVG = ("algo=uldp_avg", "algo.cycle=2", "rounds=5")
CORRELATED = ("mechanism=correlated", "mechanism.bands=3")
QUIET = "algo.noise_multiplier=0"
RINGS = ["plain", "masked", "secagg_exact_noise"]


def models(exp, *, resume_after=None, rounds=5):
    """The parameters after each round. resume_after: a round after which all parties begin anew
    from a checkpoint."""
    found = []
    with prepare(exp) as run:
        for number in range(1, rounds + 1):
            result = run.run_round(run.queries(number), run.state)
            run.state = result.state
            found.append(run.state.params)
            if number == resume_after:
                arrays = run.arrays(run.state)
                break
        else:
            return found
    with prepare(exp, arrays) as run:
        for number in range(resume_after + 1, rounds + 1):
            run.state = run.run_round(run.queries(number), run.state).state
            found.append(run.state.params)
    return found


@pytest.mark.parametrize("aggregation", RINGS)
def test_without_noise_the_model_is_that_of_independent_sums(aggregation):
    """Undoing the strategy takes out exactly what silos have repeated."""
    words = (*AVG, f"aggregation={aggregation}", QUIET)
    words += ("aggregation.threshold=2",) if aggregation == "secagg_exact_noise" else ()
    expected = models(experiment(*words))
    found = models(experiment(*words, *CORRELATED))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_a_resumed_simulation_has_the_same_bits():
    exp = experiment(*AVG, *CORRELATED)
    np.testing.assert_array_equal(models(exp, resume_after=3), models(exp))


def test_estimates_stay_right_where_all_silos_have_forgotten():
    """With real randomness silos begin anew, and so does the holder of the model."""
    words = (*AVG, QUIET, "randomness=system", "preset.batch_size=1000")  # in no random order
    found = models(experiment(*words, *CORRELATED), resume_after=3)
    np.testing.assert_allclose(found, models(experiment(*words)), rtol=1e-6, atol=1e-7)


def raw(arrays):
    return sorted(name for name in arrays if RAW in name)


@pytest.mark.parametrize("randomness", ["simulation", "system"])
def test_raw_sums_leave_a_silo_in_simulations_only(randomness):
    exp = experiment(*AVG, *CORRELATED, f"randomness={randomness}")
    with prepare(exp) as run:
        for number in (1, 2, 3):
            run.state = run.run_round(run.queries(number), run.state).state
        exported = [
            *raw(run.arrays(run.state)),
            *raw(name for memory in run.standing.silo_states.values() for name in memory),
            *raw(name for memory in run.session.checkpoints(run.silos).values() for name in memory),
        ]
        inside = [silo.raw for silo in map(run.session.participants.get, run.silos)]
        assert all(len(memory) == 2 for memory in inside)  # what messages repeat is there
        assert bool(exported) == (randomness == "simulation")
        if exported:
            name = f"{SILO}silo0/{RAW}update"
            np.testing.assert_array_equal(run.arrays(run.state)[name], inside[0][RAW + "update"])
        # No method sees them, and what the holder of the model keeps is made of totals.
        assert not any(run.session.participants[name].silo.state for name in run.silos)
        slots = {ESTIMATES + "update", ESTIMATES + "update" + ROUNDS}
        assert set(run.state.slots) == slots


def test_no_file_of_a_run_holds_raw_sums(tmp_path):
    exp = experiment(*AVG, *CORRELATED, "randomness=system", "rounds=3", "quiet=true", "device=cpu")
    train(exp, "rounds: 3\n", tmp_path / "run")
    arrays = Checkpoint.read(tmp_path / "run" / "checkpoint.safetensors").arrays
    assert arrays
    assert not raw(arrays)


def faulty(exp, *faults):
    return replace(exp, engine=Faulty(InProcess(), faults))


def test_a_round_without_a_sum_is_repeated_by_no_message():
    """Silo 1's message of round 2 is lost: the round has no sum, and later messages lack it."""
    words = (*AVG, QUIET)

    def run(*more):
        exp = faulty(experiment(*words, *more), drop(exchange=2, sender="silo1"))
        results = []
        with prepare(exp) as run:
            for number in range(1, 6):
                result = run.run_round(run.queries(number), run.state)
                run.state = result.state
                results.append((bool(result.aborted), run.state.params))
        return results

    found, expected = run(*CORRELATED), run()
    assert [aborted for aborted, _ in found] == [False, True, False, False, False]
    for (one, params), (other, independent) in zip(found, expected, strict=True):
        assert one == other
        np.testing.assert_allclose(params, independent, rtol=1e-6, atol=1e-7)


def test_a_silo_outside_a_sum_never_repeats_what_it_had_computed():
    """Two of three silos are drawn for each sum. Each remembers the rounds that it was summed in,
    and no other."""
    words = ("aggregation=secagg", "aggregation.cohort=2", "aggregation.threshold=2")
    exp = experiment(*AVG, *CORRELATED, *words)
    members = {f"silo{silo}": [] for silo in range(3)}
    with prepare(exp) as run:
        for number in range(1, 5):
            [query] = run.queries(number)
            from fedpriv.util.stopwatch import Stopwatch

            total, _ = run.exchange(query, run.state, watch=Stopwatch(), lines=[])
            run.state = exp.algo.next_state(run.state, query, total, run.plan)
            for name in total.silos:
                members[name].append(number)
        for name, rounds in members.items():
            past = Past.read(run.session.participants[name].raw, RAW + "update")
            known = [] if past is None else [number for number in past.rounds if number]
            assert known == rounds[-2:]  # three bands repeat two rounds


def test_a_round_that_is_done_again_replaces_itself():
    past = Past(np.array([0, 3]), np.array([[0.0], [5.0]])).then(3, np.array([7.0]))
    assert past.rounds.tolist() == [0, 3]
    assert past.vectors.tolist() == [[5.0], [7.0]]
    strategy = experiment(*AVG, *CORRELATED).mechanism.mixing
    assert past.repeated(strategy, 4) == pytest.approx(strategy.coefficients[1] * 7.0)


@pytest.mark.parametrize("kept", ["", ROUNDS])
def test_half_a_memory_is_none(kept):
    arrays = Past(np.array([1]), np.ones((1, 2))).arrays("raw")
    assert Past.read(arrays, "raw") is not None
    assert Past.read({"raw" + kept: arrays["raw" + kept]}, "raw") is None
