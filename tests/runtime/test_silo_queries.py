"""What a silo makes of a query, step by step: what it trains, reports, remembers, and undoes."""

from dataclasses import replace

import numpy as np
import pytest
from queries import query_for

from fedpriv.aggregation.plain import Plain
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.signer import CHECKSUM
from fedpriv.rounds.query import SUMMED, Asked, Query, Summed, Total
from fedpriv.rounds.tasks import QueryTask, SetUpTask
from fedpriv.runtime import prepare
from fedpriv.runtime.helper import HelperParticipant, SumMembership
from fedpriv.runtime.prepared_run import next_session
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.streams import Streams

SESSION = bytes(16)


@pytest.fixture
def scaffold():
    """A run of a method whose silos remember something, and its first silo."""
    with prepare(experiment(*SMALL, "algo=scaffold")) as prepared:
        yield prepared, prepared.session.participants["silo0"]


def set_up(prepared, aborted):
    return SetUpTask(next_session(prepared.standing.session_name), prepared.silos, aborted=aborted)


def remembered(silo):
    return {name: value.tolist() for name, value in silo.checkpoint().items()}


@pytest.mark.parametrize(
    ("aborted", "undone"), [((2, 0), True), ((1, 0), False), ((2, 1), False), (None, False)]
)
def test_a_set_up_undoes_what_came_of_a_query_without_a_sum_and_nothing_else(
    scaffold, aborted, undone
):
    """The silo may have been told of a sum that nobody else has."""
    prepared, silo = scaffold
    state, seen = prepared.state, []
    for number in (1, 2):
        state = prepared.run_round(prepared.queries(number), state).state
        seen.append(remembered(silo))
    assert seen[0] != seen[1]
    assert list(silo.take_part(set_up(prepared, aborted))) == []
    assert remembered(silo) == seen[0 if undone else 1]
    list(
        silo.take_part(set_up(prepared, (2, 0)))
    )  # what was known of the time before has been dropped
    assert remembered(silo) == seen[0 if undone else 1]


def test_a_silo_that_nobody_asks_reports_nothing(scaffold):
    _, silo = scaffold
    party = silo.take_part(QueryTask(1, 0))
    assert next(party) == {}
    with pytest.raises(StopIteration) as end:
        party.send({})
    report = end.value.value
    assert (report.total, report.stats, report.seconds, report.state) == (
        None,
        ContributionStats(),
        0.0,
        None,
    )


def told():
    query = Query("update", 1, (0, 1), 2, 1, None, None, (), Streams(0))
    server, silo = (Post(name, SESSION, (1, 0)) for name in ("server", "silo0"))
    kind = query.summed_schema(("silo0", "silo1"))
    letter = server.signed(SUMMED, {"silo0": Summed(("silo0", "silo1"))})["silo0"]
    return SumMembership(silo, Expected(SUMMED, kind, ("server",))), letter


def test_who_is_in_the_sum_may_be_heard_before_or_after():
    for early in (True, False):
        heard, letter = told()
        party = heard.overhearing(iter_once())
        next(party)
        with pytest.raises(StopIteration) as end:
            party.send({"server": letter} if early else {})
        assert end.value.value == {}  # the protocol has seen nothing of it
        waiting = heard.summed()
        if not early:
            assert next(waiting) == {}
        with pytest.raises(StopIteration) as end:
            waiting.send({"server": letter}) if not early else next(waiting)
        assert end.value.value == ("silo0", "silo1")


def iter_once():
    return (yield {})


def test_a_silo_that_is_never_told_ends_the_query():
    heard, _ = told()
    waiting = heard.summed()
    assert next(waiting) == {}
    with pytest.raises(AggregationAbortedError, match="silo0 has not been told who is in the sum"):
        waiting.send({})


class Done:
    """A protocol that has its sum."""

    signer = CHECKSUM

    def query(self, query, broadcast):
        yield from ()
        return Total(np.zeros(1), ("silo0", "silo1"))


@pytest.mark.parametrize("announces", [True, False])
@pytest.mark.parametrize("stateful", [True, False])
def test_silos_are_told_who_is_in_a_sum_where_they_remember_something_of_it(announces, stateful):
    """By the one helper that tells, and nobody else: silos that remember nothing wait for no such
    message."""
    helper = object.__new__(HelperParticipant)
    helper.name, helper.announces, helper.protocol = "server", announces, Done()
    query = replace(query_for(Plain(), 2), asked=Asked(stateful=stateful))
    sent = [receiver for mail in helper.answer(query, None) for receiver in mail]
    assert set(sent) == ({"silo0", "silo1"} if announces and stateful else set())


def test_all_silos_of_a_process_hold_one_tuple_of_names():
    # Ten thousand copies of ten thousand names took 15 GB.
    with prepare(experiment(*SMALL, "algo=uldp_avg")) as run:
        names = run.settings.silos
        assert run.silos is names
        for silo in map(run.session.participants.get, names):
            assert silo.present is silo.protocol.silos is names
