"""Runs in which silos die or messages are lost: what a round without a sum leaves behind."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from runs import experiment

from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.engines.base import Engine
from fedpriv.engines.inprocess import InProcessSession, answer
from fedpriv.errors import AggregationAbortedError
from fedpriv.runs.loop import train
from fedpriv.runtime import prepare
from fedpriv.testing.faults import Faulty, drop

ROUNDS, SICK = 4, "silo1"


class Death(BaseException):
    """Ends the party that raises it, and nobody else."""


@dataclass(frozen=True)
class Mortal(Engine):
    """One process in which a party can die: it says nothing any more, and its memory is gone."""

    def open(self, specs, memories):
        return MortalSession(specs, memories)


class MortalSession(InProcessSession):
    @property
    def lost(self):
        return frozenset(self.specs) - set(self.participants)

    def wake(self, mail):
        return {name: self._answer(name, mail[name]) for name in sorted(mail)}

    def _answer(self, name, mail):
        try:
            return answer(self.parties[name], mail)
        except Death:
            del self.participants[name]
            return None

    def checkpoints(self, names):
        return super().checkpoints(set(names) - self.lost)


def sick_run(folder, *words):
    train(replace(experiment(f"rounds={ROUNDS}", *words), engine=Mortal()), "", folder)


@pytest.fixture
def dying(monkeypatch):
    """Makes one silo die in the middle of its local training, in the rounds that the list holds."""
    rounds, healthy = [], UldpAvg.local_update

    def local_update(self, silo, query, down):
        update = healthy(self, silo, query, down)
        if silo.name != SICK or query.round not in rounds:
            return update

        def blocks():
            yield next(update.contributions)
            raise Death

        return replace(update, steps=blocks())

    monkeypatch.setattr(UldpAvg, "local_update", local_update)
    return rounds


def losses(folder):
    return pd.read_csv(folder / "metrics.csv")["loss"].to_numpy()


def set_ups(folder):
    """The rounds before which everybody has set up."""
    traffic = pd.read_csv(folder / "traffic.csv")
    return sorted(set(traffic[traffic["query"] == "setup"]["round"]))


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
def test_a_round_without_a_silo_releases_nothing_and_the_run_goes_on(aggregation, dying, tmp_path):
    dying += [2]
    sick_run(tmp_path / "run", f"aggregation={aggregation}", "algo.weighting=records")
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "done"
    assert list(status["aborted_rounds"]) == ["2"]
    assert SICK in status["aborted_rounds"]["2"]
    loss = losses(tmp_path / "run")
    assert loss[2] == loss[1]
    assert len(set(loss)) == ROUNDS  # rounds 0, 1 = 2, 3, 4
    assert set_ups(tmp_path / "run") == [0, 3]
    # What was sent may have been seen, so the round is charged like any other.
    charged = pd.read_csv(tmp_path / "run" / "epsilon.csv").groupby("round")["certified"].min()
    assert (np.diff(charged) > 0).all()


def test_a_sum_over_fewer_silos_does_without_the_dead_one(dying, tmp_path):
    dying += [2, 3]
    words = [
        "aggregation=secagg",
        "allocator.n_silos=4",
        "aggregation.cohort=3",
        "aggregation.threshold=3",
    ]
    sick_run(tmp_path / "run", *words)
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "done"
    assert status["aborted_rounds"] == {}
    assert len(set(losses(tmp_path / "run"))) == ROUNDS + 1
    assert status["set_ups"] == 3  # before rounds 1, 3 and 4


def test_a_silo_that_died_comes_back_with_what_it_gave_out_last():
    """So the next round is that of a healthy run, in which what a silo remembers moves all of its
    steps."""
    exp, after = replace(experiment("algo=scaffold", "aggregation=masked"), engine=Mortal()), []
    for dies in (False, True):
        with prepare(exp) as prepared:
            state = prepared.run_round(prepared.queries(1), prepared.state).state
            prepared.arrays(state)
            if dies:
                del prepared.session.participants[SICK]
            result = prepared.run_round(prepared.queries(2), state)
            assert ("setup" in {line["query"] for line in result.traffic}) == dies
            after.append(prepared.arrays(result.state))
    healthy, revived = after
    assert healthy.keys() == revived.keys()
    for key, value in healthy.items():
        np.testing.assert_array_equal(revived[key], value)


def test_a_run_without_any_sum_has_failed(dying, tmp_path):
    dying += [1, 2, 3, 4]
    with pytest.raises(AggregationAbortedError, match=r"no round had a sum; round 4: .*silo1"):
        sick_run(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "failed"


@pytest.mark.parametrize("aggregation", ["plain", "masked", "secagg"])
@pytest.mark.parametrize(
    "fault",
    [drop(exchange=2, sender=SICK), drop(exchange=2, receiver="silo2", step=3)],
    ids=["first", "last"],
)
def test_a_set_up_that_ended_early_is_repeated_before_anything_is_summed(aggregation, fault, dying):
    """A silo dies in round 1; in the set-up that follows a message is lost, so that some have new
    keys and some old."""
    words = ["rounds=4", f"aggregation={aggregation}", "algo.weighting=records"]
    dying += [1]
    with prepare(replace(experiment(*words), engine=Faulty(Mortal(), (fault,)))) as prepared:
        start, results = prepared.state, []
        for number in (1, 2, 3):
            results.append(prepared.run_round(prepared.queries(number), start))
    with prepare(experiment(*words)) as healthy:
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
