"""Silos that are lost for good, or for a while: every round whose cohort is there has its sum, and
who comes back takes part again. Where a run cannot do without a silo, it says so once."""

from dataclasses import replace

import numpy as np
import pytest
from fake_runs import read_status

from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import RefusedError
from fedpriv.rounds.query import QueryTask, SetUpTask, next_session
from fedpriv.runs.loop import train
from fedpriv.runtime import StoppedError, prepare
from fedpriv.runtime.silo_journal import Budget
from fedpriv.testing import experiment
from fedpriv.testing.deaths import Death, Mortal
from fedpriv.testing.faults import Faulty, drop

TINY = ("preset.n_users=6", "preset.local_epochs=1", "rounds=24", "quiet=true")
THREE_OF_FOUR = ("allocator.n_silos=4", "aggregation.cohort=3", "aggregation.threshold=3")
BY_COUNTS = ("algo=uldp_avg", "algo.weighting=records")
COHORTS = {
    "secagg": ("algo=uldp_avg", "aggregation=secagg", *THREE_OF_FOUR),
    "by counts": (*BY_COUNTS, "aggregation=secagg", *THREE_OF_FOUR),
    "stateful": ("algo=scaffold", "aggregation=secagg", *THREE_OF_FOUR),
    "exact": ("algo=uldp_avg", "aggregation=secagg_exact_noise", *THREE_OF_FOUR),
}
WHOLE = {
    "secagg": ("algo=uldp_avg", "aggregation=secagg", "allocator.n_silos=3"),
    "masked": (*BY_COUNTS, "aggregation=masked", "allocator.n_silos=3"),
    "plain": (*BY_COUNTS, "aggregation=plain", "allocator.n_silos=3"),
}
IN_TRAINING = 2
"""Wakes of a silo in secagg before it sends its vector."""


def aborts(words, engine, rounds=24):
    """Why rounds had no sum, by round, and the silos that were asked in the last one."""
    found = {}
    with prepare(replace(experiment(*TINY, *words), engine=engine)) as prepared:
        state = prepared.state
        for number in range(1, rounds + 1):
            result = prepared.run_round(prepared.queries(number), state)
            state = result.state
            if result.aborted is not None:
                found[number] = result.aborted
        parties = prepared.session.participants
        asked = {
            name
            for name in parties.keys() - {"server"}
            if parties[name].journal.last == (rounds, 0)
        }
    return found, asked


@pytest.mark.filterwarnings("ignore:round 4. continuing without silo3")
@pytest.mark.parametrize("back", [None, 8], ids=["for good", "for a while"])
@pytest.mark.parametrize("name", COHORTS)
def test_every_round_has_its_sum_as_long_as_the_cohort_is_there(name, back):
    """It dies as round 3 begins, so that a method with a state too can do without it."""
    deaths = (Death("silo3", 3, 0, back),)
    found, asked = aborts(COHORTS[name], Mortal(deaths), rounds=24 if back else 14)
    assert not found
    assert asked == {"silo0", "silo1", "silo2"} | ({"silo3"} if back else set())


@pytest.mark.parametrize("name", WHOLE)
def test_a_silo_that_a_sum_needs_is_back_in_the_first_round_after_its_return(name):
    """However long it was away: 17 failed set-ups are more than silos take part in before one
    round."""
    wake = {"plain": 1, "masked": 1, "secagg": IN_TRAINING}[name]
    found, asked = aborts(WHOLE[name], Mortal((Death("silo2", 3, wake, 21),)))
    assert sorted(found) == [*range(3, 21)]
    assert all("silo2" in why for why in found.values())
    assert asked == {"silo0", "silo1", "silo2"}


@pytest.mark.parametrize("name", WHOLE)
def test_a_silo_that_has_restarted_unseen_is_enrolled_after_two_rounds(name):
    """No engine tells that its memory is gone. It says nothing without a set-up of this life."""
    with prepare(experiment(*TINY, *WHOLE[name])) as prepared:
        state, sums = prepared.state, []
        for number in range(1, 7):
            if number == 3:
                prepared.session.reopen({"silo2": {}})
            result = prepared.run_round(prepared.queries(number), state)
            state = result.state
            sums.append(result.aborted is None)
            if number == 3:
                assert prepared.session.participants["silo2"].journal.last == (0, 0)
    assert sums == [True, True, False, False, True, True]


@pytest.mark.parametrize("name", COHORTS)
def test_where_the_cohort_is_there_a_silo_that_has_restarted_unseen_costs_no_round(name):
    with prepare(experiment(*TINY, *COHORTS[name])) as prepared:
        prepared.session.reopen({"silo3": {}})
        for number in (1, 2):
            result = prepared.run_round(prepared.queries(number), prepared.state)
            assert result.aborted is None
            last = prepared.session.participants["silo3"].journal.last
            assert last == ((2, 0) if number == 2 else (0, 0))


def test_a_silo_sums_over_no_fewer_than_the_cohort_whoever_is_named_in_a_set_up():
    """A server that names fewer silos is refused, and noise shares are sized for the cohort with
    three silos as with four."""
    with prepare(experiment(*TINY, *COHORTS["secagg"])) as prepared:
        silo = prepared.session.participants["silo0"]
        session = prepared.standing.session_name
        for present in (prepared.silos[:3], prepared.silos[:2]):
            session = next_session(session)
            party = silo.take_part(SetUpTask(session, present))
            if len(present) < 3:
                with pytest.raises(RefusedError, match="silo0 refuses a set-up with 2 silos"):
                    next(party)
                break
            with pytest.raises(StopIteration) as end:
                next(party)
            assert end.value.value is True
            query = silo.asked(QueryTask(1, 0))
            assert (query.n_summed, query.invited) == (3, (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("words", "goes_on"),
    [*((words, True) for words in COHORTS.values()), *((words, False) for words in WHOLE.values())],
    ids=[*COHORTS, *(f"whole {name}" for name in WHOLE)],
)
def test_a_silo_that_refuses_is_absent_by_name_and_with_its_reason(words, goes_on):
    with prepare(experiment(*TINY, *words)) as prepared:
        silo = prepared.session.participants["silo2"]
        silo.journal.budget = Budget(1e-9, 1e-5)
        result = prepared.run_round(prepared.queries(1), prepared.state)
        [why] = prepared.standing.losses[1].values()
        assert why.startswith("silo2 refuses round 1: with its earlier answers it would exceed its")
        assert result.aborted == (None if goes_on else why)
        assert silo.journal.last == (0, 0)
        asked = {name for name in prepared.silos if name != "silo2"}
        last = {prepared.session.participants[name].journal.last for name in asked}
        assert last == {(1, 0)}


def test_a_silo_that_is_back_goes_on_from_what_it_gave_out_last():
    """It may have kept what it would store of a sum that was undone while it was away."""
    with prepare(experiment(*TINY, *COHORTS["stateful"])) as prepared:
        state = prepared.run_round(prepared.queries(1), prepared.state).state
        prepared.standing.absent = frozenset({"silo3"})
        silo = prepared.session.participants["silo3"]
        silo.silo = replace(silo.silo, state={"control": silo.silo.state["control"] + 1})
        prepared.set_up(2, [], state)
        found = prepared.session.participants["silo3"].checkpoint()["control"]
        np.testing.assert_array_equal(found, prepared.standing.silo_states["silo3"]["control"])


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (WHOLE["masked"], "3 of 3"),
        (("algo=fedavg", "aggregation=admm", "allocator.n_silos=9"), "9 of 9"),
    ],
    ids=["masked", "admm"],
)
def test_a_run_that_needs_a_lost_silo_says_so_once_and_goes_on_later(words, needs, tmp_path):
    exp = experiment(*TINY, *words, "rounds=5")
    dead = replace(exp, engine=Mortal((Death("silo2", 3, 0, None),)))
    with pytest.raises(StoppedError) as stop:
        train(dead, "", tmp_path / "run")
    text = str(stop.value)
    assert text.startswith("round 4 cannot begin: ")
    assert "silo2" in text
    assert f"a sum needs {needs} silos" in text
    assert text.endswith(f"continue with resume={tmp_path / 'run'}")
    status = read_status(tmp_path / "run")
    assert (status["state"], status["reason"]) == ("failed", text)
    train(replace(exp, engine=Mortal()), "", tmp_path / "run", resume=True)
    status = read_status(tmp_path / "run")
    assert status["state"] == "done"
    assert [*status["aborted_rounds"]] == ["3"]
    assert not status["repeated_rounds"]


def test_a_run_whose_rounds_never_have_a_sum_stops(tmp_path):
    """Sixteen are charged, and not 24."""
    silent = tuple(drop(exchange=n, sender="silo2", phase="message") for n in range(200))
    exp = replace(experiment(*TINY, *WHOLE["plain"]), engine=Faulty(InProcess(), silent))
    with pytest.raises(StoppedError, match="16 rounds in a row had no sum: no message from silo2"):
        train(exp, "", tmp_path / "run")
