import numpy as np
import pytest
import scripted_parties as play

from fedpriv.engines.inprocess import InProcess
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.parties.traffic import Traffic
from fedpriv.testing.faults import Faulty, alter, delay, drop, duplicate

SILOS = ("silo0", "silo1", "silo2")


def plain_sum(*faults, traffic=None):
    """One sum over three silos, under a network with faults; it needs all of them."""
    tasks = {name: (play.tells, np.full(2, 3.0**i)) for i, name in enumerate(SILOS)}
    tasks["server"] = (play.sums_all, SILOS)
    with Faulty(InProcess(), faults).open(dict.fromkeys(tasks, play.Role()), {}) as session:
        return play.run(session, tasks, traffic)["server"]


def test_without_faults_nothing_changes():
    np.testing.assert_array_equal(plain_sum(), [13, 13])


@pytest.mark.parametrize(
    "fault", [drop(sender="silo1"), delay(1, sender="silo1", step=0)], ids=["lost", "late"]
)
def test_a_missing_message_ends_the_exchange_without_a_sum(fault):
    with pytest.raises(AggregationAbortedError, match=r"no message from silo1$"):
        plain_sum(fault)


def test_everybody_late_is_in_time():
    np.testing.assert_array_equal(plain_sum(delay(3, receiver="server")), plain_sum())


def test_everybody_lost_ends_the_exchange():
    with pytest.raises(AggregationAbortedError, match="silo0, silo1, silo2"):
        plain_sum(drop())


def test_a_duplicate_is_harmless():
    np.testing.assert_array_equal(plain_sum(duplicate()), plain_sum())


def test_an_altered_message_is_felt_where_it_is_altered():
    np.testing.assert_array_equal(
        plain_sum(alter(lambda v: v + 10, sender="silo2")), plain_sum() + 10
    )
    np.testing.assert_array_equal(
        plain_sum(alter(lambda v: v + 10, sender="silo2", step=1)), plain_sum()
    )


def test_what_is_sent_is_counted_whether_or_not_it_arrives():
    sent, lossy = Traffic(), Traffic()
    plain_sum(duplicate(sender="silo0"), traffic=sent)
    with pytest.raises(AggregationAbortedError):
        plain_sum(drop(sender="silo0"), traffic=lossy)
    assert sent.bytes == lossy.bytes
    assert sent.messages == {(0, name): 1 for name in SILOS}


def session_of(*faults):
    return Faulty(InProcess(), faults).open(dict.fromkeys(("teller", "listener"), play.Role()), {})


def heard(*faults):
    tasks = {"teller": (play.tells_and_goes_on, 1, 2, 3), "listener": (play.hears, 3)}
    with session_of(*faults) as session:
        return play.run(session, tasks)["listener"]


def test_a_late_letter_comes_after_newer_ones_and_loses_to_one_in_the_same_step():
    told = [[("teller", 1)], [("teller", 2)], [("teller", 3)]]
    assert heard() == told
    assert heard(delay(1, step=0, receiver="listener")) == [*told[1:], []]
    assert heard(delay(9, step=0, receiver="listener")) == [*told[1:], told[0]]
    assert heard(duplicate(step=2, receiver="listener")) == told
    assert heard(duplicate(step=1), drop(step=2)) == [told[0], told[1], told[1]]


def test_the_first_fault_that_fits_decides():
    faults = (drop(step=0, receiver="listener"), alter(str, receiver="listener"))
    assert heard(*faults) == [[("teller", "2")], [("teller", "3")], []]


def test_a_fault_may_be_of_one_exchange():
    tasks = {"teller": (play.tells_and_goes_on, 1), "listener": (play.hears,)}
    with session_of(
        drop(exchange=1, receiver="listener"), alter(str, exchange=2, receiver="listener")
    ) as session:
        assert [play.run(session, tasks)["listener"] for _ in range(4)] == [
            [[("teller", 1)]],
            [[]],
            [[("teller", "1")]],
            [[("teller", 1)]],
        ]
    with session_of(drop(exchange=1)) as session:  # each session counts anew
        assert play.run(session, tasks)["listener"] == [[("teller", 1)]]


def test_faults_leave_the_engine_itself_as_it_is():
    class Picky(InProcess):
        def check(self, device):
            raise ConfigError("device", device, "another one")

    with pytest.raises(ConfigError, match="device=cpu"):
        Faulty(Picky(), ()).check("cpu")
    faulty = Faulty(InProcess(), (drop(),))
    faulty.open({}, {})
    assert type(faulty.engine.open({}, {}).network()) is not type(faulty.open({}, {}).network())
