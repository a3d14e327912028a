"""Parties of one process whose work is done together."""

import pytest
import scripted_parties as play

from fedpriv.engines import inprocess
from fedpriv.engines.inprocess import InProcess

SILOS = "abcdef"


def tells_all(player, values):
    return (yield dict(zip(SILOS, values)))


@pytest.fixture
def done():
    play.Product.done.clear()
    return play.Product.done


def learned(*factors):
    """What six parties have that multiply 1 to 6 by factors."""
    with InProcess().open(dict.fromkeys([*SILOS, "server"], play.Role()), {}) as session:
        tasks = {name: (play.works, *own) for name, own in zip(SILOS, factors)}
        return play.run(session, tasks | {"server": (tells_all, range(1, 7))})


def test_work_of_one_kind_is_done_in_one_go(done):
    found = learned([2], [2], [3], [2, 3], [], [3, 2])
    assert [found[name] for name in SILOS] == [2, 4, 9, 24, 5, 36]
    assert done == [3, 2, 1, 1]
    assert found["server"] == {name: found[name] for name in SILOS}


def test_no_more_waits_than_memory_holds(done, monkeypatch):
    """Each result counts as many bytes as its value says: 1 + 2 + 3, then 4 + 5, then 6."""
    monkeypatch.setattr(inprocess, "WAITING_BYTES", 6)
    found = learned(*[[2]] * 6)
    assert [found[name] for name in SILOS] == [2, 4, 6, 8, 10, 12]
    assert done == [3, 2, 1]


def test_who_fails_at_its_work_ends_the_exchange():
    with pytest.raises(OSError, match="full"):
        learned(*[[play.FULL]] * 6)
