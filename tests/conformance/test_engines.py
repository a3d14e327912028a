"""What every engine must do. Add a new one to ENGINES with its file in conf/engine."""

import pickle
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import scripted_parties as play
from hydra.utils import instantiate
from omegaconf import OmegaConf

from fedpriv.engines import base
from fedpriv.engines.inprocess import InProcess
from fedpriv.engines.ray import RayEngine
from fedpriv.engines.sites import Sites
from fedpriv.errors import AggregationAbortedError, ConfigError
from fedpriv.parties.messages import MessageError
from fedpriv.parties.party import PATIENCE
from fedpriv.parties.traffic import Traffic
from fedpriv.testing.faults import Faulty, alter, delay, drop, duplicate

pytestmark = pytest.mark.xdist_group("ray")

CONF = Path(__file__).parents[2] / "conf" / "engine"
ENGINES = {"inprocess": InProcess(), "ray": RayEngine()}
NAMES = ("a", "b", "server")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request):
    if request.param != "ray":
        return ENGINES[request.param]
    return replace(ENGINES["ray"], address=request.getfixturevalue("cluster").address)


@pytest.fixture(scope="module")
def session(engine):
    """Parties that live through all tests of this module, as they live through all rounds of a
    run.
    """
    with engine.open(dict.fromkeys(NAMES, play.Role()), {}) as session:
        yield session


def test_every_configuration_is_tested_and_its_keys_are_the_fields():
    apart = "sites"  # its silos are made elsewhere: see tests/sites
    assert {path.stem for path in CONF.glob("*.yaml")} == {*ENGINES, apart}
    keys = set(OmegaConf.load(CONF / f"{apart}.yaml")) - {"_target_"}
    assert keys == {field.name for field in fields(Sites)}
    for name, engine in ENGINES.items():
        config = OmegaConf.load(CONF / f"{name}.yaml")
        assert instantiate(config) == engine  # the yaml holds the defaults
        assert set(config) - {"_target_"} == {field.name for field in fields(engine)}
        assert pickle.loads(pickle.dumps(engine)) == engine


TWO_WORK = {"a": (play.works, 2, 3), "b": (play.works, 5), "server": (play.tells_both, 7, 11)}
TWO_MULTIPLY = {"a": (play.multiplies, 2), "server": (play.adds,), "b": (play.multiplies, 5)}
EXCHANGES = {
    "nobody at all": ({}, {}),
    "messages arrive and results come back": (TWO_MULTIPLY, {"a": 14, "b": 35, "server": None}),
    # Of parties that ask for one, two and no more at all.
    "work in place of messages is done in the same step": (
        TWO_WORK,
        {"a": 42, "b": 55, "server": {"a": 42, "b": 55}},
    ),
    "who has no task is not there": (
        {"a": (play.tells, 1), "server": (play.hears,)},
        {"a": None, "server": [[("a", 1)]]},
    ),
    "a silent party does not hang the others": (
        {"a": (play.hears,), "b": (play.tells, 1), "server": (play.hears,)},
        {"a": [[]], "b": None, "server": [[("b", 1)]]},
    ),
    "a server learns that nobody answers": (
        {"a": (play.hears,), "server": (play.asks, "a")},
        {"a": [[("server", "hello")]], "server": "nobody"},
    ),
    "mail to who has left is lost": (
        {"a": (play.leaves, 1), "b": (play.keeps_on, "a", 1)},
        {"a": 1, "b": [{}]},
    ),
    "who writes to somebody gone may finish": (
        {"a": (play.leaves, 1), "b": (play.keeps_on, "a", 3)},
        {"a": 1, "b": [{}, {}, {}]},
    ),
}


@pytest.mark.parametrize("case", EXCHANGES)
def test_what_parties_learn(session, case):
    tasks, learned = EXCHANGES[case]
    assert play.run(session, tasks) == learned


def test_order_of_parties_does_not_matter(session):
    tasks = {"server": (play.hears,), "b": (play.tells, "B"), "a": (play.tells, "A")}
    one, two = play.run(session, tasks), play.run(session, dict(reversed(tasks.items())))
    assert one == two
    assert one["server"] == [[("a", "A"), ("b", "B")]]


def test_a_defect_of_a_party_comes_out_with_its_text(session):
    with pytest.raises((ValueError, RuntimeError), match="bad"):
        play.run(session, {"a": (play.fails, ValueError, "bad"), "b": (play.tells, 1)})


@pytest.mark.parametrize(
    ("error", "words"),
    [(AggregationAbortedError, ["too few"]), (ConfigError, ["algo.clip", -1, "a positive number"])],
    ids=["aborted", "config"],
)
def test_a_mistake_of_the_user_comes_out_as_it_is(session, error, words):
    with pytest.raises(error) as caught:
        play.run(session, {"server": (play.fails, error, *words), "a": (play.tells, 1)})
    assert str(caught.value) == str(error(*words))
    assert type(caught.value) is error


def test_of_two_mistakes_in_a_step_the_first_by_name_comes_out(session):
    error = AggregationAbortedError
    with pytest.raises(AggregationAbortedError) as caught:
        play.run(
            session, {"b": (play.fails_at_once, error, "b"), "a": (play.fails_at_once, error, "a")}
        )
    assert str(caught.value) == "a"


def test_a_task_may_be_refused(session):
    with pytest.raises(AggregationAbortedError, match="not with me"):
        play.run(session, {"a": (play.refuses_the_task,), "b": (play.leaves,)})


def test_the_parties_go_on_after_a_mistake(session):
    for _ in range(2):
        with pytest.raises(AggregationAbortedError):
            play.run(
                session,
                {"a": (play.waits_for_ever,), "server": (play.fails, AggregationAbortedError, "x")},
            )
        assert play.run(session, {"a": (play.multiplies, 3), "server": (play.adds,)}) == {
            "a": 9,
            "server": None,
        }
    assert not session.lost


def test_waiting_for_ever_is_an_error(session):
    with pytest.raises(RuntimeError, match="but b go on waiting"):
        play.run(session, {"a": (play.leaves,), "b": (play.waits_for_ever,)})


def test_who_talks_to_itself_for_ever_keeps_nobody_waiting(session, monkeypatch):
    """Parties learn that nothing comes for them as if the network were silent, and then the talker
    is left behind."""
    monkeypatch.setattr(base, "PATIENCE", 5)
    monkeypatch.setattr(base, "STRAGGLING", 9)
    tasks = {"a": (play.talks_for_ever, "a"), "b": (play.hears, 3), "server": (play.asks, "b")}
    assert play.run(session, tasks) == {"b": [[("server", "hello")], [], []], "server": "nobody"}
    assert play.run(session, {"a": (play.multiplies, 3), "server": (play.adds,)}) == {
        "a": 9,
        "server": None,
    }
    assert not session.lost


def test_a_party_that_waits_is_woken_after_as_many_steps_as_it_is_patient(session, monkeypatch):
    """It starts in step 0; five steps without mail follow each time."""
    monkeypatch.setattr(base, "PATIENCE", 5)
    monkeypatch.setattr(base, "STRAGGLING", 9)
    traffic = Traffic(keep=True)
    play.run(session, {"a": (play.talks_for_ever, "a"), "b": (play.keeps_on, "server", 3)}, traffic)
    assert [letter.step for letter in traffic.transcript if letter.sender == "b"] == [0, 6, 12]


def test_strays_keep_nobody_waiting(session, monkeypatch):
    """Somebody who sends what nobody waits for, in every step, is as good as silent."""
    monkeypatch.setattr(base, "STRAGGLING", PATIENCE + 9)
    tasks = {
        "a": (play.talks_in_strays, "server"),
        "b": (play.leaves,),
        "server": (play.awaits_a_word, "b"),
    }
    assert play.run(session, tasks) == {"b": None, "server": ("nothing", {"a": PATIENCE})}


def test_a_long_exchange_is_no_straggling(session, monkeypatch):
    monkeypatch.setattr(base, "PATIENCE", 5)
    monkeypatch.setattr(base, "STRAGGLING", 9)
    learned = play.run(
        session, {"a": (play.keeps_on, "server", 20), "server": (play.keeps_on, "a", 20)}
    )
    assert learned["server"] == [{"a": number} for number in range(20)]


def test_what_is_no_message_is_refused(session):
    with pytest.raises((MessageError, RuntimeError), match="cannot hold builtins"):
        play.run(session, {"a": (play.tells, {1, 2}), "server": (play.hears,)}, Traffic())


def test_large_messages_come_whole_and_with_their_types(session):
    value = {
        "noise": np.random.default_rng(0).random(10**6),
        "keys": [2**3000 + 1, b"x" * 10**6, None],
    }
    learned = play.run(session, {"a": (play.echoes, "b", value), "b": (play.passes_back, "a")})
    assert learned["a"]["noise"].tobytes() == value["noise"].tobytes()
    assert learned["a"]["keys"] == value["keys"]
    sizes = (
        0,
        1,
        2**15,
        12288,
        12287,
        12289,
        196608,
        196607,
        196609,
    )  # pieces and calls end among them
    for array in map(np.arange, sizes):
        heard = play.run(session, {"a": (play.echoes, "b", array), "b": (play.passes_back, "a")})[
            "a"
        ]
        np.testing.assert_array_equal(heard, array, strict=True)


def test_traffic_is_counted_alike(session):
    traffic = Traffic(keep=True)
    play.run(
        session,
        {"a": (play.multiplies, 2), "server": (play.adds,), "b": (play.multiplies, 5)},
        traffic,
    )
    assert traffic.messages == {(0, "a"): 1, (0, "b"): 1, (1, "server"): 2}
    assert [tuple(letter) for letter in traffic.transcript] == [
        (0, "a", "server", 2),
        (0, "b", "server", 5),
        (1, "server", "a", 7),
        (1, "server", "b", 7),
    ]


def test_a_party_remembers_between_exchanges_and_tells_nobody(session):
    assert play.run(session, {"a": (play.remembers, "key", b"secret")}) == {"a": ["key"]}
    notes = play.run(session, {"a": (play.tells_notes,), "b": (play.tells_notes,)})
    assert notes == {"a": {"key": b"secret"}, "b": {}}


def test_a_party_made_anew_knows_its_checkpoint_alone(session):
    vector = np.arange(3.0)
    play.run(
        session, {"a": (play.remembers, "model", vector), "b": (play.remembers, "model", -vector)}
    )
    play.run(
        session, {"a": (play.remembers, "key", b"secret"), "b": (play.remembers, "key", b"other")}
    )
    checkpoints = session.checkpoints(["a", "b"])
    assert {name: set(memory) for name, memory in checkpoints.items()} == {
        "a": {"model"},
        "b": {"model"},
    }
    session.reopen({"a": checkpoints["a"]})
    notes = play.run(session, dict.fromkeys(("a", "b"), (play.tells_notes,)))
    assert set(notes["a"]) == {"model"}
    np.testing.assert_array_equal(notes["a"]["model"], vector, strict=True)
    assert notes["b"]["key"] == b"other"
    session.reopen({"a": {}, "b": {}})
    assert play.run(session, dict.fromkeys(("a", "b"), (play.tells_notes,))) == {"a": {}, "b": {}}


def test_parties_begin_with_their_own_belongings_and_checkpoints(engine):
    roles = {name: play.Role(name.upper()) for name in ("a", "b")}
    with engine.open(roles, {"b": {"model": np.ones(2)}}) as session:
        assert play.run(session, dict.fromkeys(roles, (play.tells_belongings,))) == {
            "a": "A",
            "b": "B",
        }
        notes = play.run(session, dict.fromkeys(roles, (play.tells_notes,)))
        assert notes["a"] == {}
        np.testing.assert_array_equal(notes["b"]["model"], np.ones(2), strict=True)


def test_a_mistake_in_making_a_party_comes_out(engine):
    with pytest.raises(ConfigError, match="data=x: another one"):
        engine.open({"a": play.Role(), "b": play.Role(fails=True)}, {})


FAULTS = (
    (),
    (drop(sender="a"),),
    (delay(1, sender="a"),),
    (delay(2, receiver="server"),),
    (duplicate(),),
    (drop(),),
    (alter(lambda value: np.nextafter(value, 9), sender="b"),),
    (delay(1, step=1), drop(step=0, sender="b")),
)


def test_faults_are_those_of_one_process_bit_for_bit(engine):
    """One exchange for each set of faults, all in one session."""
    faults = tuple(
        replace(fault, exchange=i) for i, faults in enumerate(FAULTS) for fault in faults
    )
    heard = []
    for faulty in (Faulty(engine, faults), Faulty(InProcess(), faults)):
        with faulty.open(dict.fromkeys(NAMES, play.Role()), {}) as session:
            heard.append([outcome(session) for _ in FAULTS])
    assert heard[0] == heard[1]
    assert len(set(heard[0])) == len(FAULTS)  # each set of faults is felt


def outcome(session):
    rng, traffic = np.random.default_rng(0), Traffic(keep=True)
    tasks = {name: (play.averages, rng.normal(size=40)) for name in ("a", "b")} | {
        "server": (play.means, 3)
    }
    with np.printoptions(floatmode="unique", threshold=sys.maxsize):
        return repr((play.run(session, tasks, traffic), traffic.transcript))
