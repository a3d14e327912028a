"""What every engine must do. Add a new one to ENGINES with its file in conf/engine."""

import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from plans import plan_for

from fedpriv.aggregation.base import SERVER, AggregationAborted
from fedpriv.aggregation.plain import Plain
from fedpriv.algorithms.base import Contributions, Update
from fedpriv.algorithms.uldp import records
from fedpriv.engines.base import reporting
from fedpriv.engines.faults import Faulty, delay, drop, duplicate
from fedpriv.engines.inprocess import InProcess
from fedpriv.engines.messages import MessageError
from fedpriv.engines.processes import Processes
from fedpriv.engines.traffic import Traffic
from fedpriv.errors import ConfigError
from fedpriv.simulation import exchange
from fedpriv.streams import Streams

CONF = Path(__file__).parents[2] / "conf" / "engine"
SMALLER = {"private_weighting": {"key_bits": 512, "n_max": 24}}
"""What makes an aggregation faster than as it is configured."""
ENGINES = {"inprocess": InProcess(), "processes": Processes()}


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]


def test_every_configuration_is_tested_and_its_keys_are_the_fields():
    assert {path.stem for path in CONF.glob("*.yaml")} == set(ENGINES)
    for name, engine in ENGINES.items():
        config = OmegaConf.load(CONF / f"{name}.yaml")
        assert instantiate(config) == engine  # the yaml holds the defaults
        assert set(config) - {"_target_"} == {field.name for field in fields(engine)}
        assert pickle.loads(pickle.dumps(engine)) == engine


def test_messages_arrive_and_results_come_back(engine):
    def silo(value):
        inbox = yield {"server": value}
        return inbox["server"] * value

    def server():
        inbox = yield {}
        total = sum(inbox.values())
        yield dict.fromkeys(inbox, total)

    learned = engine.run({"a": silo(2), "server": server(), "b": silo(5)})
    assert learned == {"a": 14, "b": 35, "server": None}


def test_order_of_parties_does_not_matter(engine):
    def silo(name):
        yield {"server": name}

    def server():
        return list((yield {}).items())

    parties = dict.fromkeys(("z", "a", "m"), silo)
    one = engine.run({**{n: f(n) for n, f in parties.items()}, "server": server()})
    two = engine.run({"server": server(), **{n: f(n) for n, f in reversed(parties.items())}})
    assert one == two
    assert one["server"] == [("a", "a"), ("m", "m"), ("z", "z")]


def test_a_silent_party_does_not_hang_the_others(engine):
    def silent():
        yield {}

    def talker():
        yield {"server": 1}

    def server():
        return dict((yield {}))

    assert engine.run({"quiet": silent(), "loud": talker(), "server": server()})["server"] == {"loud": 1}


def test_a_defect_of_a_party_comes_out_with_its_text(engine):
    def broken():
        yield {}
        raise ValueError("bad")

    def other():
        yield {"broken": 1}

    with pytest.raises((ValueError, RuntimeError), match="bad"):
        engine.run({"broken": broken(), "other": other()})


@pytest.mark.parametrize("error", [AggregationAborted("too few"), ConfigError("algo.clip", -1, "a positive number")])
def test_a_mistake_of_the_user_comes_out_as_it_is(engine, error):
    def server():
        yield {}
        raise error

    def silo():
        yield {"server": 1}

    with pytest.raises(type(error)) as caught:
        engine.run({"server": server(), "silo": silo()})
    assert str(caught.value) == str(error)


def test_of_two_mistakes_in_a_step_the_first_by_name_comes_out(engine):
    def broken(name):
        raise AggregationAborted(name)
        yield

    with pytest.raises(AggregationAborted, match="a"):
        engine.run({"b": broken("b"), "a": broken("a")})


def test_a_server_learns_that_nobody_answers(engine):
    def silent():
        yield {}

    def server():
        yield {"silo": "hello"}
        return "nobody"

    assert engine.run({"silo": silent(), "server": server()})["server"] == "nobody"


def test_mail_to_who_has_left_is_lost(engine):
    def early():
        return 1
        yield

    def late():
        yield {"early": "?"}
        return 2

    assert engine.run({"early": early(), "late": late()}) == {"early": 1, "late": 2}


def test_who_writes_to_somebody_gone_may_finish(engine):
    def early():
        return 1
        yield

    def late():
        for number in range(3):
            assert (yield {"early": number}) == {}
        return 2

    assert engine.run({"early": early(), "late": late()}) == {"early": 1, "late": 2}


def test_waiting_for_ever_is_an_error(engine):
    def stubborn():
        while True:
            yield {}

    with pytest.raises(RuntimeError, match="stubborn"):
        engine.run({"stubborn": stubborn()})


def test_nobody_at_all(engine):
    assert engine.run({}) == {}


def test_what_is_no_message_is_refused(engine):
    def careless():
        yield {"server": object()}

    with pytest.raises((MessageError, RuntimeError), match="cannot hold builtins"):
        engine.run({"careless": careless()}, Traffic())


def test_memory_and_notes_come_home(engine):
    class Count:
        value = 0

    def counter(memory, count):
        for _ in range(3):
            count.value += 1
            yield {"twin": None}
        memory["seen"] = (*memory.get("seen", ()), count.value)

    memory, count, traffic = {"party": {}, "other": {"kept": b"secret"}}, Count(), Traffic()
    for seen in [(3,), (3, 6)]:
        # A note is read where the party ran; what it counted elsewhere is not added to what is here.
        count.value = 3 * (len(seen) - 1)
        parties = {"party": counter(memory["party"], count), "twin": iter_twin()}
        learned, notes = exchange(engine, parties, memory, traffic, {"party": lambda: count.value})
        assert memory == {"party": {"seen": seen}, "other": {"kept": b"secret"}}
        assert learned == {"party": None, "twin": "heard"}
        assert notes == {"party": seen[-1]}


def iter_twin():
    for _ in range(3):
        yield {"party": None}
    return "heard"


def test_a_report_is_made_at_the_partys_end(engine):
    def party(diary):
        diary.append("worked")
        yield {}
        diary.append("ended")

    diary = []
    learned = engine.run({"party": reporting(party(diary), lambda: list(diary))})
    assert learned == {"party": (None, ["worked", "ended"])}


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (drop(sender="silo1"),),
        (delay(1, sender="silo1"),),
        (delay(2, receiver=SERVER),),
        (duplicate(),),
        (drop(),),
    ],
    ids=["none", "lost", "late", "all late", "twice", "all lost"],
)
def test_a_plain_round_is_that_of_one_process_bit_for_bit(engine, faults):
    assert one_round(Plain(), Faulty(engine, faults)) == one_round(Plain(), Faulty(InProcess(), faults))


@pytest.mark.parametrize("path", sorted((CONF.parent / "aggregation").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_aggregation_gives_the_sum_of_one_process(engine, path):
    aggregation = instantiate(OmegaConf.load(path), **SMALLER.get(path.stem, {}))
    assert one_round(aggregation, engine)[:2] == one_round(aggregation, InProcess())[:2]


def one_round(aggregation, engine):
    """Set-up with record counts, then a round over three silos: what is learned, the bytes of each party, and all that
    is remembered and sent (where keys are drawn, the latter differs between rounds), as text."""
    rng = np.random.default_rng(0)
    counts = rng.integers(1, 9, (3, 50))
    vectors, noise = rng.normal(size=(3, 50, 40)), rng.normal(size=(3, 40))
    silos = [f"silo{s}" for s in range(3)]
    memory, traffic = {name: {} for name in [SERVER, *silos]}, Traffic(keep=True)
    setup = aggregation.setup(dict(zip(silos, counts)), records, True, memory)
    exchange(engine.engine if isinstance(engine, Faulty) else engine, setup, memory, traffic)
    updates = {
        name: Update(
            (Contributions(np.arange(i, i + 10), torch.from_numpy(vectors[s, i : i + 10])) for i in range(0, 50, 10)),
            noise[s],
        )
        for s, name in enumerate(silos)
    }
    try:
        parties = aggregation.exchange(plan_for(aggregation, 3, streams=Streams(0), users=50), updates, memory)
        learned, _ = exchange(engine, parties, memory, traffic)
    except AggregationAborted as aborted:
        learned = str(aborted)
    with np.printoptions(floatmode="unique", threshold=sys.maxsize):
        return repr(learned), traffic.rows(1, "round"), repr((memory, traffic.transcript))


def test_a_run_leaves_the_same_files(tmp_path):
    words = ["rounds=2", "algo=uldp_avg_w", "allocator.n_users=12", "algo.local_epochs=2"]
    for name in ENGINES:
        command = [sys.executable, "-m", "fedpriv", *words, f"engine={name}", f"hydra.run.dir={name}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for file in ("metrics.csv", "epsilon.csv", "traffic.csv", "model.safetensors"):
        reference = (tmp_path / "inprocess" / file).read_bytes()
        for name in ENGINES:
            assert (tmp_path / name / file).read_bytes() == reference, (name, file)
    for name in ENGINES:
        header = (tmp_path / name / "timings.csv").read_text().splitlines()[0]
        assert header == (tmp_path / "inprocess" / "timings.csv").read_text().splitlines()[0]
