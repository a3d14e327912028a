"""Runs in which silos die or messages are lost: what a round without a sum leaves behind."""

import json
import multiprocessing
import os
import signal

import numpy as np
import pandas as pd
import pytest
from runs import experiment

from fedpriv.aggregation.base import AggregationAborted
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.run import train

ROUNDS, SICK = 4, "silo1"


def sick_run(folder, *words):
    train(experiment(f"rounds={ROUNDS}", "engine=processes", *words), "", folder)


@pytest.fixture
def dying(monkeypatch):
    """Makes the process of one silo die in the middle of its local training, in the rounds that the list holds."""
    rounds, healthy = [], UldpAvg.local_update

    def local_update(self, local, plan, theta):
        update = healthy(self, local, plan, theta)
        if local.name != SICK or plan.round not in rounds:
            return update

        def blocks():
            yield next(update.blocks)
            os.kill(os.getpid(), signal.SIGKILL)

        return type(update)(blocks(), update.noise, update.tally)

    monkeypatch.setattr(UldpAvg, "local_update", local_update)
    return rounds


def losses(folder):
    return pd.read_csv(folder / "metrics.csv")["loss"].to_numpy()


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
@pytest.mark.filterwarnings("ignore:silo1 is silent")
def test_a_round_without_a_silo_releases_nothing_and_the_run_goes_on(aggregation, dying, tmp_path):
    dying += [2]
    sick_run(tmp_path / "run", f"aggregation={aggregation}")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "done"
    assert list(status["aborted_rounds"]) == ["2"]
    assert SICK in status["aborted_rounds"]["2"]
    loss = losses(tmp_path / "run")
    assert loss[2] == loss[1]
    assert len(set(loss)) == ROUNDS  # rounds 0, 1 = 2, 3, 4
    assert not multiprocessing.active_children()
    # What was sent may have been seen, so the round is charged like any other.
    charged = pd.read_csv(tmp_path / "run" / "epsilon.csv").groupby("round")["certified"].min()
    assert (np.diff(charged) > 0).all()


@pytest.mark.filterwarnings("ignore:silo1 is silent")
def test_a_sum_over_fewer_silos_does_without_the_dead_one(dying, tmp_path):
    dying += [2, 3]
    words = ["aggregation=secagg", "allocator.n_silos=4", "aggregation.cohort=3", "aggregation.threshold=3"]
    sick_run(tmp_path / "run", *words)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "done"
    assert status["aborted_rounds"] == {}
    assert len(set(losses(tmp_path / "run"))) == ROUNDS + 1
    assert not multiprocessing.active_children()


@pytest.mark.filterwarnings("ignore:silo1 is silent")
def test_a_run_without_any_sum_has_failed(dying, tmp_path):
    dying += [1, 2, 3, 4]
    with pytest.raises(AggregationAborted, match=r"no round had a sum; round 4: .*silo1"):
        sick_run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"
