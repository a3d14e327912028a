"""Parties that die and messages that are lost: what a round leaves behind, with a sum or without
one."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fake_runs import read_status
from interrupted import Death as Interruption
from interrupted import dies_in
from runs import experiment

from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError
from fedpriv.runs.folder import RunFolder
from fedpriv.runs.loop import train
from fedpriv.runs.records import OTHER_REPEATS
from fedpriv.runtime import prepare
from fedpriv.testing import experiment as small
from fedpriv.testing.deaths import Death, Mortal
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.faults import Faulty, drop

SICK = "silo1"
IN_TRAINING, AFTER_ITS_MESSAGE = 1, 2
"""Wakes of a silo in a plain sum: it trains, and would return."""


def trained(folder, rounds, *deaths, words=(), resume=False):
    exp = experiment("algo=uldp_avg", f"rounds={rounds}", "quiet=true", *words)
    train(replace(exp, engine=Mortal(deaths)), "", folder, resume)
    return read_status(folder)


def losses(folder):
    return pd.read_csv(folder / "metrics.csv")["loss"].to_numpy()


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_a_round_without_a_silo_releases_nothing_and_the_run_goes_on(aggregation, tmp_path):
    words = (f"aggregation={aggregation}", "algo.weighting=records")
    status = trained(tmp_path, 4, Death(SICK, 2, IN_TRAINING), words=words)
    assert status["state"] == "done"
    assert list(status["aborted_rounds"]) == ["2"]
    assert SICK in status["aborted_rounds"]["2"]
    loss = losses(tmp_path)
    assert loss[2] == loss[1]
    assert len(set(loss)) == 4  # rounds 0, 1 = 2, 3, 4
    traffic = pd.read_csv(tmp_path / "traffic.csv")
    assert set(traffic[traffic["query"] == "setup"]["round"]) == {0, 3}
    # What was sent may have been seen, so the round is charged like any other.
    charged = pd.read_csv(tmp_path / "epsilon.csv").groupby("round")["certified"].min()
    assert (np.diff(charged) > 0).all()


def test_a_sum_over_fewer_silos_does_without_the_dead_one(tmp_path):
    words = ("aggregation=secagg", "allocator.n_silos=4")
    words += ("aggregation.cohort=3", "aggregation.threshold=3")
    deaths = (Death(SICK, exchange, IN_TRAINING) for exchange in (2, 4))  # rounds 2 and 3
    status = trained(tmp_path, 4, *deaths, words=words)
    assert status["state"] == "done"
    assert status["aborted_rounds"] == {}
    assert len(set(losses(tmp_path))) == 5
    assert status["set_ups"] == 3  # before rounds 1, 3 and 4


def test_a_silo_that_died_comes_back_with_what_it_gave_out_last():
    """So the next round is that of a healthy run, in which what a silo remembers moves all of its
    steps."""
    exp, after = replace(experiment("algo=scaffold", "aggregation=masked"), engine=Mortal()), []
    for dies in (False, True):
        with prepare(exp) as prepared:
            state = prepared.run_round(prepared.queries(1), prepared.state).state
            if dies:
                del prepared.session.participants[SICK]
            result = prepared.run_round(prepared.queries(2), state)
            assert ("setup" in {line["query"] for line in result.traffic}) == dies
            after.append(prepared.arrays(result.state))
    healthy, revived = after
    assert healthy.keys() == revived.keys()
    for key, value in healthy.items():
        np.testing.assert_array_equal(revived[key], value)


def test_a_run_without_any_sum_has_failed(tmp_path):
    deaths = (Death(SICK, exchange, IN_TRAINING) for exchange in (1, 3, 5, 7))
    with pytest.raises(AggregationAbortedError, match=r"no round had a sum; round 4: .*silo1"):
        trained(tmp_path, 4, *deaths)
    assert read_status(tmp_path)["state"] == "failed"


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
@pytest.mark.parametrize(
    "fault",
    [drop(exchange=2, sender=SICK), drop(exchange=2, receiver="silo2", step=3)],
    ids=["first", "last"],
)
def test_a_set_up_that_ended_early_is_repeated_before_anything_is_summed(aggregation, fault):
    """A silo dies in round 1; in the set-up that follows a message is lost, so that some have new
    keys and some old."""
    exp = experiment("rounds=4", f"aggregation={aggregation}", "algo.weighting=records")
    engine = Faulty(Mortal((Death(SICK, 1, IN_TRAINING),)), (fault,))
    with prepare(replace(exp, engine=engine)) as prepared:
        start = prepared.state
        results = [prepared.run_round(prepared.queries(number), start) for number in (1, 2, 3)]
    with prepare(exp) as healthy:
        third = healthy.run_round(healthy.queries(3), start)
    assert results[0].aborted
    if aggregation != "masked" and fault.step == 3:  # their set-ups have no such step
        assert not results[1].aborted
    else:
        assert results[1].aborted
        assert {line["query"] for line in results[1].traffic} == {"setup"}
        assert "setup" in {line["query"] for line in results[2].traffic}
    assert not results[2].aborted
    np.testing.assert_allclose(results[2].state.params, third.state.params, rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:repeating the set-up")
@pytest.mark.parametrize(
    ("deaths", "lost"),
    [
        ((), None),
        ((Death("silo1", 0, 0),), "0"),  # in the first set-up
        ((Death("silo1", 2, AFTER_ITS_MESSAGE),), "2"),
    ],
)
def test_a_party_that_dies_is_recorded(deaths, lost, tmp_path):
    status = trained(tmp_path / "run", 2, *deaths)
    assert status["aborted_rounds"] == {}
    assert status.get("lost_parties") == (lost and {lost: {"silo1": "silent"}})
    log = (tmp_path / "run" / "run.log").read_text()
    assert (f"WARNING round {lost}: lost silo1: silent" in log) == bool(lost)


def test_losses_of_earlier_processes_stay(tmp_path):
    trained(tmp_path / "run", 2, Death("silo0", 1, AFTER_ITS_MESSAGE), Death("server", 3, 1))
    lost = {"1": {"silo0": "silent"}, "2": {"server": "silent"}}
    assert read_status(tmp_path / "run")["lost_parties"] == lost
    status = trained(tmp_path / "run", 3, Death("silo2", 1, AFTER_ITS_MESSAGE), resume=True)
    assert status["lost_parties"] == lost | {"3": {"silo2": "silent"}}


@pytest.mark.parametrize("deaths", [(), (Death("server", 2, 1),)], ids=["whole", "lost"])
def test_repeated_rounds_that_differ_are_named(deaths, tmp_path):
    """The first attempt at round 3 starts from the model of round 1, the second from round 2's."""
    words = ["checkpoint_every=10"]
    with dies_in(3, sums=[]), pytest.raises(Interruption):
        trained(tmp_path / "run", 4, *deaths, words=words)
    status = trained(tmp_path / "run", 4, words=words, resume=True)
    assert status["repeated_rounds"] == {"1": 1, "2": 1, "3": 1}
    assert status["aborted_rounds"] == {}
    assert status.get("repeats_differ") == (OTHER_REPEATS if deaths else None)


@pytest.mark.filterwarnings("ignore:round 3")
def test_a_resumed_run_knows_that_rounds_had_fewer_silos(tmp_path):
    """Of the noise of five silos one knows a fifth, of that of nine a ninth."""
    words = ("preset.n_silos=9", "aggregation=admm", "aggregation.preset=null")
    words += ("aggregation.iterations=32", "aggregation.beyond_safe=true", "randomness=system")
    words += ("aggregation.least_peers=3", "algo=uldp_naive", "algo.noise_multiplier=5")
    silent = tuple(drop(exchange=n, sender=f"silo{k}") for n in range(2, 30) for k in range(3, 7))

    def trained(folder, rounds, faults=(), resume=False):
        exp = small(*SMALL, *words, f"rounds={rounds}", "quiet=true")
        train(replace(exp, engine=Faulty(InProcess(), faults)), "", folder, resume)
        rows = RunFolder(folder).tables.rows("epsilon.csv")
        of_silo = {row["round"]: row["certified"] for row in rows if row["observer"] == "silo"}
        return float(of_silo["4"])

    whole = trained(tmp_path / "whole", 4)
    fewer = trained(tmp_path / "fewer", 4, silent)
    with dies_in(5, sums=[]), pytest.raises(Interruption):
        trained(tmp_path / "dead", 5, silent)
    left_out = read_status(tmp_path / "dead")["left_out"]
    assert left_out == ["silo3", "silo4", "silo5", "silo6"]
    (tmp_path / "dead" / "epsilon.csv").unlink()  # written anew from the ledger
    assert whole < fewer <= trained(tmp_path / "dead", 5, resume=True)
