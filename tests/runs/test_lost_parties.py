"""Parties that die are in a run's records, whether or not their round has a sum."""

from dataclasses import replace

import pytest
from interrupted import Death as Interruption
from interrupted import dies_in
from runs import experiment

from fedpriv.engines.inprocess import InProcess
from fedpriv.runs.folder import RunFolder, read_status
from fedpriv.runs.loop import train
from fedpriv.runs.records import OTHER_REPEATS
from fedpriv.testing import experiment as small
from fedpriv.testing.deaths import Death, Mortal
from fedpriv.testing.experiments import SMALL
from fedpriv.testing.faults import Faulty, drop

AFTER_ITS_MESSAGE = 2
"""Wakes of a silo in a plain sum before it would return."""


def trained(folder, rounds, *deaths, words=(), resume=False):
    exp = experiment("algo=uldp_avg", f"rounds={rounds}", "quiet=true", *words)
    train(replace(exp, engine=Mortal(deaths)), "", folder, resume)
    return read_status(folder)


def test_a_silo_that_dies_after_its_message_is_recorded(tmp_path):
    status = trained(tmp_path / "run", 3, Death("silo1", 2, AFTER_ITS_MESSAGE))
    assert status["aborted_rounds"] == {}
    assert status["lost_parties"] == {"2": {"silo1": "silent"}}
    assert "WARNING round 2: lost silo1: silent" in (tmp_path / "run" / "run.log").read_text()


def test_losses_of_earlier_processes_stay(tmp_path):
    trained(tmp_path / "run", 2, Death("silo0", 1, AFTER_ITS_MESSAGE), Death("server", 3, 1))
    lost = {"1": {"silo0": "silent"}, "2": {"server": "silent"}}
    assert read_status(tmp_path / "run")["lost_parties"] == lost
    status = trained(tmp_path / "run", 3, Death("silo2", 1, AFTER_ITS_MESSAGE), resume=True)
    assert status["lost_parties"] == lost | {"3": {"silo2": "silent"}}


def test_repeated_rounds_that_differ_are_named(tmp_path):
    """The first attempt at round 3 starts from the model of round 1, the second from round 2's."""
    words = "checkpoint_every=10"
    with dies_in(3, sums=[]), pytest.raises(Interruption):
        trained(tmp_path / "run", 4, Death("server", 2, 1), words=[words])
    status = trained(tmp_path / "run", 4, words=[words], resume=True)
    assert status["repeated_rounds"] == {"1": 1, "2": 1, "3": 1}
    assert status["aborted_rounds"] == {}
    assert status["repeats_differ"] == OTHER_REPEATS


def test_repeated_rounds_without_a_loss_are_equal(tmp_path):
    with dies_in(3, sums=[]), pytest.raises(Interruption):
        trained(tmp_path / "run", 4, words=["checkpoint_every=10"])
    status = trained(tmp_path / "run", 4, words=["checkpoint_every=10"], resume=True)
    assert "repeats_differ" not in status


def test_the_status_of_a_run_without_losses_has_no_such_entry(tmp_path):
    assert "lost_parties" not in trained(tmp_path / "run", 1)


@pytest.mark.filterwarnings("ignore:repeating the set-up")
def test_a_party_that_dies_in_the_first_set_up_is_recorded(tmp_path):
    status = trained(tmp_path / "run", 1, Death("silo1", 0, 0))
    assert status["lost_parties"] == {"0": {"silo1": "silent"}}


@pytest.mark.filterwarnings("ignore:round 3")
def test_a_resumed_run_knows_that_rounds_had_fewer_silos(tmp_path):
    """Of the noise of five silos one knows a fifth, of that of nine a ninth."""
    words = ("preset.n_silos=9", "aggregation=admm", "aggregation.preset=null")
    words += ("aggregation.iterations=32", "aggregation.beyond_safe=true", "randomness=system")
    words += ("aggregation.least_peers=3", "algo=uldp_naive", "algo.noise_multiplier=5")
    silent = tuple(drop(exchange=n, sender=f"silo{k}") for n in range(2, 60) for k in range(3, 7))

    def trained(folder, rounds, faults=(), resume=False):
        exp = small(*SMALL, *words, f"rounds={rounds}", "quiet=true")
        train(replace(exp, engine=Faulty(InProcess(), faults)), "", folder, resume)
        rows = RunFolder(folder).rows("epsilon.csv")
        of_silo = {row["round"]: row["certified"] for row in rows if row["observer"] == "silo"}
        return float(of_silo["8"])

    whole = trained(tmp_path / "whole", 8)
    fewer = trained(tmp_path / "fewer", 8, silent)
    with dies_in(9, sums=[]), pytest.raises(Interruption):
        trained(tmp_path / "dead", 9, silent)
    left_out = read_status(tmp_path / "dead")["left_out"]
    assert left_out == ["silo3", "silo4", "silo5", "silo6"]
    (tmp_path / "dead" / "epsilon.csv").unlink()  # written anew from the ledger
    assert whole < fewer <= trained(tmp_path / "dead", 9, resume=True)
