import csv

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from fedpriv.config import build
from fedpriv.engines.inprocess import InProcess
from fedpriv.engines.messages import MessageError, encode
from fedpriv.engines.traffic import Letter, Traffic


def silo(value):
    total = (yield {"server": value})["server"]
    yield {"server": total}


def server():
    inbox = yield {}
    yield dict.fromkeys(inbox, sum(inbox.values()))
    yield {}


def parties():
    return {"server": server(), "b": silo(np.ones(3)), "a": silo(2 * np.ones(3))}


def parties_with_a_quiet_one():
    def quiet():
        return None
        yield

    return parties() | {"quiet": quiet()}


def test_counts_what_each_party_sends():
    log = Traffic()
    InProcess().run(parties_with_a_quiet_one(), log)
    size = len(encode(np.ones(3)))
    assert log.messages == {"server": 2, "b": 2, "a": 2, "quiet": 0}
    assert log.bytes == {"server": 2 * size, "b": 2 * size, "a": 2 * size, "quiet": 0}
    assert log.transcript is None
    assert log.rows(4, "round")[1] == {"round": 4, "phase": "round", "party": "b", "messages": 2, "bytes": 2 * size}


def test_keeps_a_transcript():
    log = Traffic(keep=True)
    InProcess().run(parties_with_a_quiet_one(), log)
    assert [letter[:3] for letter in log.transcript] == [
        (0, "a", "server"),
        (0, "b", "server"),
        (1, "server", "a"),
        (1, "server", "b"),
        (2, "a", "server"),
        (2, "b", "server"),
    ]
    assert isinstance(log.transcript[0], Letter)
    np.testing.assert_array_equal(log.transcript[2].message, 3 * np.ones(3))


def test_with_a_log_every_message_must_have_an_encoding():
    def careless():
        yield {"server": object()}

    with pytest.raises(MessageError, match="object"):
        InProcess().run({"careless": careless()}, Traffic())


def test_a_run_writes_its_traffic(tmp_path):
    from fedpriv.help import conf_dir
    from fedpriv.run import train

    with initialize_config_dir(str(conf_dir()), version_base=None):
        config = compose("config", ["rounds=2", "algo=uldp_avg_w", "algo.local_epochs=1", "allocator.n_users=4"])
    train(build(config), "", tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "run" / "traffic.csv").read_text().splitlines()))
    names = ["server", "silo0", "silo1", "silo2"]
    phases = [("0", "setup"), ("1", "round"), ("2", "round")]
    assert [(row["round"], row["phase"], row["party"]) for row in rows] == [
        (*p, name) for p in phases for name in names
    ]
    weights, vector = len(encode(np.zeros(4))), len(encode(np.zeros(62)))  # linear: 30 inputs, 2 classes
    assert [int(row["messages"]) for row in rows] == [3, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]
    assert [int(row["bytes"]) for row in rows] == [3 * weights, *3 * [weights], *2 * [0, *3 * [vector]]]
