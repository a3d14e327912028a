import numpy as np
import scripted_parties as play

from fedpriv.engines.inprocess import InProcess
from fedpriv.parties.messages import encode
from fedpriv.parties.traffic import Traffic

SIZE = len(encode(np.ones(3)))


def traffic_of(tasks, **keep):
    traffic = Traffic(**keep)
    with InProcess().open(dict.fromkeys(tasks, play.Role()), {}) as session:
        play.run(session, tasks, traffic)
    return traffic


def a_sum():
    """Two values go up, their sum comes down; one party has nothing to say."""
    tasks = {"b": (play.multiplies, np.ones(3)), "a": (play.multiplies, 2 * np.ones(3))}
    return tasks | {"server": (play.adds,), "quiet": (play.leaves,)}


def test_counts_what_each_party_sends_in_each_step():
    traffic = traffic_of(a_sum())
    assert traffic.messages == {(0, "a"): 1, (0, "b"): 1, (1, "server"): 2}
    assert traffic.bytes == {(0, "a"): SIZE, (0, "b"): SIZE, (1, "server"): 2 * SIZE}
    assert traffic.transcript is None
    columns = ("round", "query", "step", "party", "messages", "bytes")
    assert traffic.rows(4, "update") == [
        dict(zip(columns, (4, "update", 0, "a", 1, SIZE))),
        dict(zip(columns, (4, "update", 0, "b", 1, SIZE))),
        dict(zip(columns, (4, "update", 1, "server", 2, 2 * SIZE))),
    ]
