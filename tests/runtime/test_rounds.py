"""What ends a round, or a run, instead of a model: lost parties, sums that differ, parameters that
are not numbers."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from runs import experiment

from fedpriv.algorithms.scaffold import Scaffold
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.errors import AggregationAbortedError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.query import Query, SiloReport, Total
from fedpriv.runtime import DivergedError, PreparedRun, prepare
from fedpriv.runtime.standing import Standing
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.streams import Streams

NAMES = ("silo0", "silo1")
QUERY = Query("update", 3, (0, 1), 2, 2, Gaussian(1.0, 5.0), None, (), Streams(0))


def agreed(learned, learners=NAMES):
    """What `learners` have, or all silos where none are named, and who is at fault."""
    plan = SimpleNamespace(threat_model=SimpleNamespace(learners=learners))
    known = SimpleNamespace(plan=plan, standing=Standing())
    try:
        return PreparedRun.agreed(known, QUERY, learned), {}
    except AggregationAbortedError as abort:
        return str(abort), known.standing.faults


def total(*numbers, silos=NAMES):
    return Total(np.array(numbers), silos)


def test_what_everybody_learned_alike_is_the_total():
    same = {
        "silo0": total(1.0, 2.0),
        "silo1": SiloReport(total(1.0, 2.0), ContributionStats(), 0.0),
    }
    for learners in (NAMES, ()):
        assert agreed(same, learners) == (same["silo0"], {})


OTHERS = [total(1.0, 2.1), total(1.0, 2.0, silos=("silo1", "silo0")), total(1.0)]


@pytest.mark.parametrize("other", OTHERS)
def test_a_total_that_one_of_two_learned_otherwise_ends_the_round(other):
    for learners in (NAMES, ()):
        told = agreed({"silo0": total(1.0, 2.0), "silo1": other}, learners)
        assert told == ("the parties have learned different totals", {})


@pytest.mark.parametrize(
    ("other", "what"),
    [
        *((other, "total") for other in OTHERS),
        (SiloReport(total(1.0, 2.0), None, 0.0, state=b"x"), "state"),
    ],
)
def test_who_tells_something_else_than_most_is_at_fault(other, what):
    usual = SiloReport(total(1.0, 2.0), None, 0.0)
    why, faults = agreed({"silo0": usual, "silo1": other, "server": usual}, (*NAMES, "server"))
    assert why == f"silo1 has told another {what} than most"
    assert faults == {"silo1": why}


@pytest.mark.parametrize(
    "missing", [{}, {"silo1": None}, {"silo1": SiloReport(None, ContributionStats(), 0.0)}]
)
def test_a_total_that_somebody_lacks_is_none(missing):
    assert "silo1 was lost" in agreed({"silo0": total(1.0, 2.0)} | missing)[0]


@pytest.mark.parametrize(
    ("algo", "spoils"),
    [
        (UldpAvg, lambda state: state.params.__setitem__(-1, np.nan)),
        (UldpAvg, lambda state: state.params.__setitem__(-1, np.inf)),
        (Scaffold, lambda state: state.slots["control"].__setitem__(-1, np.nan)),
    ],
)
def test_one_part_of_the_state_that_is_no_number_ends_the_run(algo, spoils, monkeypatch):
    update = algo.global_update

    def spoiled(self, *given):
        state = update(self, *given)
        copied = {name: slot.copy() for name, slot in state.slots.items()}
        state = replace(state, params=state.params.copy(), slots=copied)
        spoils(state)
        return state

    monkeypatch.setattr(algo, "global_update", spoiled)
    name = "uldp_avg" if algo is UldpAvg else "scaffold"
    with (
        prepare(experiment(f"algo={name}")) as prepared,
        pytest.raises(DivergedError, match="round 1: "),
    ):
        prepared.run_round(prepared.queries(1), prepared.state)


def test_no_query_begins_before_a_set_up_that_everybody_has_ended():
    """Some silos would have new keys, and some old ones."""
    with prepare(experiment("algo=uldp_avg", "algo.weighting=records")) as prepared:
        assert prepared.standing.ready
        session, asked = prepared.session, []
        prepared.session = SimpleNamespace(
            lost=frozenset({"silo1"}),
            refusals={},
            why_lost=lambda name: "its process died",
            reopen=asked.append,
            run=lambda tasks, traffic: asked.append(set(tasks)),
        )
        lines = []
        with pytest.raises(AggregationAbortedError, match="the set-up has lost silo1"):
            prepared.set_up(4, lines)
        assert asked == [{"silo1": {}}, {"server", *prepared.silos}]
        assert not prepared.standing.ready
        assert prepared.standing.losses == {4: {"silo1": "its process died"}}
        prepared.session = session
        result = prepared.run_round(prepared.queries(5), prepared.state)
        assert {line["query"] for line in result.traffic} == {"setup", "update"}
        assert prepared.standing.ready
        again = prepared.run_round(prepared.queries(6), result.state)
        assert {line["query"] for line in again.traffic} == {"update"}


def covering(places):
    """What a server says of the sum if it covers the silos at these places of those invited."""
    return lambda known: replace(known, silos=tuple(known.silos[place] for place in places))


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (covering((0, 1, 2)), None),
        (covering((0, 1)), "the sum covers 2 silos instead of 3"),
        (covering((0, 1, 1)), "server"),
        (covering(()), "the sum covers 0 silos instead of 3"),
        (lambda known: None, "server"),
        (lambda known: "a sum", "server"),
        (lambda known: 3.0, "server"),
    ],
)
def test_what_a_party_says_it_has_learned_is_checked(says, why, monkeypatch):
    """A sum that covers other silos than its noise is sized for is released by nobody."""
    with prepare(experiment("algo=uldp_avg", "aggregation=masked")) as prepared:
        run = prepared.session.run

        def lying(tasks, traffic):
            known = run(tasks, traffic)
            return known | {"server": says(known["server"])}

        monkeypatch.setattr(prepared.session, "run", lying)
        result = prepared.run_round(prepared.queries(1), prepared.state)
        if why is None:
            assert result.aborted is None
            assert not np.array_equal(result.state.params, prepared.state.params)
        else:
            assert why in result.aborted
            assert result.state is prepared.state
