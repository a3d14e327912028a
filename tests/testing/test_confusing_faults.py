"""Faults that put one letter in another one's place."""

import pytest
import scripted_parties as play

from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.post import Message
from fedpriv.parties.traffic import Letter
from fedpriv.testing.faults import Faulty, drop, misdeliver, replay, swap

SENDERS = ("a", "b", "c")


def tells_each(player, messages):
    yield messages


def heard(*faults, exchanges=1, says=lambda name, exchange: f"{name}{exchange}"):
    """What the server has heard in the last of so many exchanges."""
    with Faulty(InProcess(), faults).open(
        dict.fromkeys((*SENDERS, "server"), play.Role()), {}
    ) as session:
        for exchange in range(exchanges):
            tasks = {name: (play.tells, says(name, exchange)) for name in SENDERS}
            learned = play.run(session, tasks | {"server": (play.hears,)})
    return dict(learned["server"][0])


def test_two_senders_are_taken_for_each_other():
    assert heard(swap("a", "c")) == {"a": "c0", "b": "b0", "c": "a0"}
    assert heard(swap("a", "c", step=3)) == heard()


def test_two_receivers_get_what_is_the_other_ones():
    with Faulty(InProcess(), (misdeliver("a", "b"),)).open(
        dict.fromkeys("abs", play.Role()), {}
    ) as session:
        tasks = {"a": (play.hears,), "b": (play.hears,), "s": (tells_each, {"a": 1, "b": 2})}
        learned = play.run(session, tasks)
    assert learned["a"] == [[("s", 2)]]
    assert learned["b"] == [[("s", 1)]]


def test_letters_of_an_earlier_exchange_or_of_another_session_are_repeated():
    assert heard(replay(exchange=1, sender="b"), exchanges=2) == {"a": "a1", "b": "b0", "c": "c1"}
    assert heard(replay(exchange=0, sender="b")) == heard()
    old = [Letter(0, "b", "server", "stolen")]
    assert heard(replay(old)) == heard() | {"b": "stolen"}


@pytest.mark.parametrize(("phase", "lost"), [("one", True), ("two", False)])
def test_a_fault_may_be_of_one_phase(phase, lost):
    stamped = heard(
        drop(phase=phase, sender="b"), says=lambda name, _: Message(b"", 1, 0, "one", name, b"")
    )
    assert ("b" not in stamped) == lost
