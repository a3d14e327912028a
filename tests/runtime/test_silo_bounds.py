"""What a silo lets into a sum, number by number: bounded, counted, each unit once, with the
declared share of noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from queries import query_for

from fedpriv.aggregation.plain import Plain
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import AggregationAbortedError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.parties.post import Expected, Post
from fedpriv.parties.signer import CHECKSUM
from fedpriv.rounds.bounding import bounded
from fedpriv.rounds.contributors import RecordVectors, Silos, Users
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.query import (
    SUMMED,
    Asked,
    Query,
    QueryTask,
    SetUpTask,
    Total,
    next_session,
)
from fedpriv.rounds.silo_context import Silo
from fedpriv.runtime import prepare
from fedpriv.runtime.helper import HelperParticipant, SumMembership
from fedpriv.runtime.silo import SiloWork
from fedpriv.testing import experiment
from fedpriv.testing.experiments import SMALL
from fedpriv.training.contributions import Contributions, ContributionStats
from fedpriv.training.description import Recipe, Training
from fedpriv.util.streams import Streams


def query(mechanism=None, **details):
    numbers = {
        "n_summed": 4,
        "size": 2,
        "encoding": None,
        "events": (),
        "streams": Streams(0),
    } | details
    return Query("update", 1, (0, 1, 2, 3), mechanism=mechanism or Gaussian(1.0, 5.0), **numbers)


def block(units, *rows):
    return Contributions(np.array(units), torch.tensor(rows))


def test_contributions_are_clipped_counted_and_dropped_one_by_one():
    stats = ContributionStats()
    rows = [3.0, 4.0], [float("nan"), 0.0], [0.0, 1.0]
    first, second = bounded(
        iter([block([3, 1, 2], *rows), block([7], [0.25, 0.0])]), query(), stats
    )
    np.testing.assert_array_equal(first.units, [3, 2])
    np.testing.assert_allclose(first.vectors, [[0.6, 0.8], [0.0, 1.0]])
    np.testing.assert_array_equal(second.vectors, [[0.25, 0.0]])
    assert (stats.units, stats.nonfinite, stats.norm_sum, stats.clipped) == (4, 1, 6.25, 1)


def test_users_outside_of_the_sample_are_left_out():
    """A method that forgets the sample would be charged as if it had kept to it."""
    sampled = np.array([True, False, True, False])
    blocks = block([0, 1, 2], [0.1, 0.0], [0.2, 0.0], [0.3, 0.0]), block([3], [0.4, 0.0])
    stats = ContributionStats()
    [kept] = bounded(iter(blocks), query(sampled=sampled, user_rate=0.5), stats)
    np.testing.assert_array_equal(kept.units, [0, 2])
    assert stats.units == 2


@pytest.mark.parametrize("contributors", [Users(), RecordVectors()])
def test_records_that_train_together_are_one_silos_contribution(contributors):
    training = Training(Recipe(1, None, 0.1), np.zeros(2), pooled=True)
    silo = Silo(0, None, None, None, None, contributors=contributors)
    with pytest.raises(ValueError, match="declare Silos"):
        silo.train(query(), training)
    replace(silo, contributors=Silos()).train(query(), training)
    silo.train(query(asked=Asked(enforced=False)), training)


def test_a_method_that_bounds_by_itself_is_left_alone():
    stats, raw = ContributionStats(), block([3, 3], [30.0, 40.0], [0.0, 1.0])
    (seen,) = bounded(iter([raw]), query(asked=Asked(enforced=False)), stats)
    assert seen is raw
    assert stats == ContributionStats()


@pytest.mark.parametrize("blocks", [[[1, 1]], [[1], [1]], [[1, 2], [3, 2]]])
def test_a_unit_that_comes_twice_is_refused(blocks):
    made = [block(units, *[[0.1, 0.0]] * len(units)) for units in blocks]
    with pytest.raises(ValueError, match="contributes twice"):
        list(bounded(iter(made), query(), ContributionStats()))


@pytest.mark.parametrize("enforced", [True, False])
@pytest.mark.parametrize(
    ("units", "rows"),
    [([1], [[0.5]]), ([1], [[0.1] * 3]), ([1, 2], [[0.1, 0.1]]), ([1], [0.1, 0.1])],
)
def test_vectors_of_another_length_are_refused(units, rows, enforced):
    """A vector of one number would be spread over all coordinates, after it was bounded."""
    with pytest.raises(ValueError, match="one vector of 2 coordinates"):
        list(
            bounded(
                iter([block(units, *rows)]),
                query(asked=Asked(enforced=enforced)),
                ContributionStats(),
            )
        )


def test_a_unit_below_zero_is_refused():
    """It would have the weight of another unit, and count beside it."""
    with pytest.raises(ValueError, match="unit -1 does not exist"):
        list(bounded(iter([block([-1], [0.1, 0.0])]), query(), ContributionStats()))


def test_the_share_is_sized_for_the_sum_the_sensitivity_and_the_grid():
    """Drawn anew from the same stream: any other number in its place gives other noise."""
    silo = SimpleNamespace(streams=Streams(0), name="silo0")
    mechanism, grid = DiscreteGaussian(1.0, 5.0), FixedPoint(64, 100.0, 4)
    asked = query(mechanism, sensitivity=2.0, encoding=grid)
    rng = Streams(0).secret("noise", 1, "silo0")
    expected = mechanism.noise_share(2, 4, rng, sensitivity=2.0, encoding=grid)
    seen = SiloWork(SimpleNamespace(silo=silo), asked).noise(LocalJob(iter(())), asked)[0]
    assert expected.any()
    np.testing.assert_array_equal(seen, expected)


def test_noise_is_the_methods_own_only_where_it_says_so():
    silo = SimpleNamespace(streams=Streams(0), name="silo0")
    own = LocalJob(iter(()), np.full(2, 7.0))
    for asked, local, expected in (
        (query(asked=Asked(enforced=False)), own, own.noise),
        (query(asked=Asked(enforced=False)), LocalJob(iter(())), np.zeros(2)),
    ):
        np.testing.assert_array_equal(
            SiloWork(SimpleNamespace(silo=silo), asked).noise(local, asked)[0], expected
        )
    seen = SiloWork(SimpleNamespace(silo=silo), query()).noise(own, query())[0]
    assert not np.array_equal(seen, own.noise)


# -- what a silo makes of a query, step by step: what it trains, reports, remembers, and undoes ----


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
    letter = server.signed(SUMMED, {"silo0": ("silo0", "silo1")})["silo0"]
    return SumMembership(silo, Expected(SUMMED, kind, ("server",))), letter


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
