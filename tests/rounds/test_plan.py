from dataclasses import replace

import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.mechanisms.removable_noise import LEAST_PART
from fedpriv.rounds.plan import (
    ROUNDED_ALIKE,
    Channel,
    Federation,
    ObservedRelease,
    Observer,
    Plan,
    ThreatModel,
)
from fedpriv.rounds.query import Query
from fedpriv.util.streams import Streams

OBSERVERS = (
    Observer("released model", sees_sample=False),
    Observer("server", sees_counts="counts are shown"),
    Observer("silo", own_shares=1, why_uncertified="its key is short"),
)


def plan(*observers, assumptions=("nobody colludes",)):
    channel = Channel(Gaussian(1.0, 5.0), 3, 3, None)
    threat_model = ThreatModel(observers or OBSERVERS, ("server",), assumptions)
    return Plan(Federation(10, 3, 5), {"update": channel}, threat_model, Streams(0))


def observed_events(made, **details):
    def see(observer):
        return ObservedRelease(
            GaussianDpEvent(5.0), GaussianDpEvent(7.0), (f"seen by {observer.name}",)
        )

    events = made.observed_events(
        see, unit="user", adjacency=ADD_REMOVE, assumptions=("weights are bounded",), **details
    )
    return {event.observer: event for event in events}


def test_what_the_aggregation_assumes_and_where_it_fails_is_in_every_event():
    seen = observed_events(plan())
    assert list(seen) == ["released model", "server", "silo"]
    for event in seen.values():
        assert event.assumptions[:4] == (
            "Gaussian noise drawn in floating point",
            ROUNDED_ALIKE,
            "nobody colludes",
            "weights are bounded",
        )
        assert event.claimed == GaussianDpEvent(7.0)
    assert seen["server"].certified == GaussianDpEvent(5.0)
    assert seen["server"].assumptions[-1] == "seen by server"
    assert seen["silo"].certified == NonPrivateDpEvent()
    assert seen["silo"].assumptions[-1] == "FAILS: its key is short"


def test_counts_that_reach_an_observer_end_its_certificate_only_where_weights_depend_on_them():
    seen = observed_events(plan(), weights_from_counts=True)
    assert seen["server"].certified == NonPrivateDpEvent()
    assert seen["server"].assumptions[-1] == "FAILS: counts are shown"
    assert seen["released model"].certified == GaussianDpEvent(5.0)


def test_who_hides_what():
    made = plan()
    assert made.hides_messages
    assert not made.hides_sample
    open_server = Observer("server", sees_messages=True)
    assert not plan(OBSERVERS[0], open_server).hides_messages
    blind = [Observer(name, sees_sample=False) for name in ("released model", "server", "silo")]
    assert plan(*blind).hides_sample


def test_an_observer_that_does_not_exist_is_named():
    with pytest.raises(
        ConfigError, match=r"algo\.observer=shuffler: .*released model, server, silo"
    ):
        plan().observer("shuffler")


def test_a_query_takes_the_numbers_of_its_channel():
    query = plan().query(4, events=(), sensitivity=2.0)
    assert (query.round, query.invited, query.n_summed, query.size, query.sensitivity) == (
        4,
        (0, 1, 2),
        3,
        5,
        2.0,
    )
    assert query.stream("noise") == "noise"
    later = plan().query(4, events=(), place=1)
    assert later.stream("noise") == "update noise"
    assert query.serial < later.serial < plan().query(5, events=()).serial


def test_events_of_a_query_that_is_not_enforced_are_the_methods_word_however_it_was_made():
    events = tuple(observed_events(plan()).values())
    queries = {
        "enforced": plan().query(1, events=events),
        "declared": plan().query(1, events=events, enforced=False),
        "checked": replace(plan(), checked=True).query(1, events=events, enforced=False),
    }
    for status, query in queries.items():
        assert {event.status for event in query.events} == {status}
    later = replace(queries["enforced"], enforced=False)
    assert {event.status for event in later.events} == {"declared"}
    assert {event.status for event in replace(later, events=events).events} == {"declared"}
    assert {event.status for event in replace(later, enforced=True).events} == {"declared"}


def test_nothing_is_relaxed_that_nobody_asked_for():
    """What is not said is the plain case: one unit's bound, all users, the first query, one record
    a unit."""
    query = plan().query(4, events=())
    assert (query.sensitivity, query.user_rate, query.place) == (1.0, 1.0, 0)
    assert (query.enforced, query.checked, query.stateful) == (True, False, False)
    alone = Query("update", 4, (0,), 1, 5, query.mechanism, None, (), Streams(0))
    assert (alone.enforced, alone.checked) == (True, False)
    observer = Observer("server")
    assert (observer.sees_messages, observer.sees_sample, observer.own_shares) == (False, True, 0)
    assert Federation(10, 3, 5).records_per_draw == 1
    assert {event.group_size for event in observed_events(plan()).values()} == {1}


def test_every_part_of_noise_that_can_be_taken_out_spans_the_grid():
    """Of 2 to 4 silos: a grid that is fine enough for a share is too coarse for its smallest
    part.
    """
    encoding = FixedPoint(32, 2.0**20, 4)
    noise = Gaussian(1.0, LEAST_PART * encoding.unit)
    Channel(noise, 4, 2, encoding).check_noise()
    with pytest.raises(ConfigError, match=f"at least {LEAST_PART} are needed"):
        Channel(noise, 4, 2, encoding, n_most=4).check_noise()


def test_whoever_drew_noise_is_assumed_to_subtract_it():
    assert Observer("server").subtracts == ()
    assert Observer("silo", own_shares=1).subtracts == (
        "one silo subtracts its own noise share and does not collude",
    )


def test_events_describe_the_channel_they_are_asked_for():
    """Two kinds of query, of which one has no noise, in a run whose noise protects."""
    made = replace(plan(), streams=Streams(0, system=True))
    quiet = Channel(NoMechanism(), 3, 3, None)
    both = replace(made, channels={**made.channels, "other": quiet})
    for channel, noise in (
        (both.channels["update"], ("integer noise, exactly sampled",)),
        (quiet, ()),
    ):
        event = observed_events(both, channel=channel)["server"]
        assert event.assumptions == (
            *noise,
            ROUNDED_ALIKE,
            "nobody colludes",
            "weights are bounded",
            "seen by server",
        )
    assert both.query(1, events=(), name="other").mechanism == NoMechanism()
