"""What a network with faults delivers instead of each letter."""

import numpy as np
import pytest
import scripted_parties as play

from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError
from fedpriv.parties.post import Message
from fedpriv.parties.traffic import Letter, Traffic
from fedpriv.testing.faults import Faulty, alter, delay, drop, duplicate, misdeliver, replay, swap

SILOS = ("silo0", "silo1", "silo2")
SENDERS = ("a", "b", "c")


def session_of(faults, names):
    return Faulty(InProcess(), tuple(faults)).open(dict.fromkeys(names, play.Role()), {})


def plain_sum(*faults, traffic=None):
    """One sum over three silos, under a network with faults; it needs all of them."""
    tasks = {name: (play.tells, np.full(2, 3.0**i)) for i, name in enumerate(SILOS)}
    tasks["server"] = (play.sums_all, SILOS)
    with session_of(faults, tasks) as session:
        return play.run(session, tasks, traffic)["server"].tolist()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (delay(3, receiver="server"), 13),
        (duplicate(), 13),
        (alter(lambda v: v + 10, sender="silo2"), 23),
        (alter(lambda v: v + 10, sender="silo2", step=1), 13),
    ],
)
def test_a_sum_under_a_fault(fault, expected):
    assert plain_sum() == [13, 13]
    assert plain_sum(fault) == [expected, expected]


@pytest.mark.parametrize(
    ("fault", "missing"),
    [
        (drop(sender="silo1"), r"no message from silo1$"),
        (delay(1, sender="silo1", step=0), r"no message from silo1$"),
        (drop(), "silo0, silo1, silo2"),
    ],
)
def test_a_missing_message_ends_the_exchange_without_a_sum(fault, missing):
    with pytest.raises(AggregationAbortedError, match=missing):
        plain_sum(fault)


def test_what_is_sent_is_counted_whether_or_not_it_arrives():
    sent, lossy = Traffic(), Traffic()
    plain_sum(duplicate(sender="silo0"), traffic=sent)
    with pytest.raises(AggregationAbortedError):
        plain_sum(drop(sender="silo0"), traffic=lossy)
    assert sent.bytes == lossy.bytes
    assert sent.messages == {(0, name): 1 for name in SILOS}


TOLD = [[("teller", 1)], [("teller", 2)], [("teller", 3)]]
HEARD = [
    ([], TOLD),
    ([delay(1, step=0, receiver="listener")], [*TOLD[1:], []]),
    ([delay(9, step=0, receiver="listener")], [*TOLD[1:], TOLD[0]]),
    ([duplicate(step=2, receiver="listener")], TOLD),
    ([duplicate(step=1), drop(step=2)], [TOLD[0], TOLD[1], TOLD[1]]),
    (
        [drop(step=0, receiver="listener"), alter(str, receiver="listener")],
        [[("teller", "2")], [("teller", "3")], []],
    ),
]


@pytest.mark.parametrize(("faults", "expected"), HEARD)
def test_a_late_letter_comes_after_newer_ones_and_the_first_fault_that_fits_decides(
    faults, expected
):
    tasks = {"teller": (play.tells_and_goes_on, 1, 2, 3), "listener": (play.hears, 3)}
    with session_of(faults, tasks) as session:
        assert play.run(session, tasks)["listener"] == expected


def test_a_fault_may_be_of_one_exchange():
    tasks = {"teller": (play.tells_and_goes_on, 1), "listener": (play.hears,)}
    faults = drop(exchange=1, receiver="listener"), alter(str, exchange=2, receiver="listener")
    expected = [[[("teller", 1)]], [[]], [[("teller", "1")]], [[("teller", 1)]]]
    with session_of(faults, tasks) as session:
        assert [play.run(session, tasks)["listener"] for _ in range(4)] == expected
    with session_of([drop(exchange=1)], tasks) as session:  # each session counts anew
        assert play.run(session, tasks)["listener"] == [[("teller", 1)]]


def told(*faults, exchanges=1, says=lambda name, exchange: f"{name}{exchange}"):
    """What the server has heard in the last of so many exchanges."""
    with session_of(faults, (*SENDERS, "server")) as session:
        for exchange in range(exchanges):
            tasks = {name: (play.tells, says(name, exchange)) for name in SENDERS}
            learned = play.run(session, tasks | {"server": (play.hears,)})
    return dict(learned["server"][0])


EACH = {"a": "a0", "b": "b0", "c": "c0"}


@pytest.mark.parametrize(
    ("fault", "exchanges", "expected"),
    [
        (swap("a", "c"), 1, EACH | {"a": "c0", "c": "a0"}),
        (swap("a", "c", step=3), 1, EACH),
        (replay(exchange=1, sender="b"), 2, {"a": "a1", "b": "b0", "c": "c1"}),
        (replay(exchange=0, sender="b"), 1, EACH),
        (replay([Letter(0, "b", "server", "stolen")]), 1, EACH | {"b": "stolen"}),
    ],
)
def test_a_letter_in_the_place_of_another(fault, exchanges, expected):
    assert told(fault, exchanges=exchanges) == expected


def test_two_receivers_get_what_is_the_other_ones():
    def tells_each(player, messages):
        yield messages

    tasks = {"a": (play.hears,), "b": (play.hears,), "s": (tells_each, {"a": 1, "b": 2})}
    with session_of([misdeliver("a", "b")], tasks) as session:
        learned = play.run(session, tasks)
    assert (learned["a"], learned["b"]) == ([[("s", 2)]], [[("s", 1)]])


@pytest.mark.parametrize(("phase", "lost"), [("one", True), ("two", False)])
def test_a_fault_may_be_of_one_phase(phase, lost):
    stamped = told(
        drop(phase=phase, sender="b"), says=lambda name, _: Message(b"", 1, 0, "one", name, b"")
    )
    assert ("b" not in stamped) == lost
