"""Processes that die, hang or fail, and that none is ever left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from plans import plan_for

from fedpriv.aggregation.base import AggregationAborted
from fedpriv.engines.base import reporting
from fedpriv.engines.messages import encode
from fedpriv.engines.processes import Processes
from fedpriv.errors import ConfigError, FedprivError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def alive(pid):
    """Whether the process exists; a zombie that nobody has waited for counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.01)


@pytest.fixture
def pids(tmp_path):
    """A folder where parties leave their process ids; afterwards, none of them may exist."""
    folder = tmp_path / "pids"
    folder.mkdir()
    yield folder
    left = [int(path.name) for path in folder.iterdir()]
    assert left
    assert not [pid for pid in left if alive(pid)]


def note(pids):
    (pids / str(os.getpid())).touch()


def silo(pids, end=lambda: None):
    note(pids)
    yield {"server": os.getpid()}
    end()
    yield {"server": "second"}


def server(pids):
    note(pids)
    first = yield {}
    second = yield dict.fromkeys(first, "go on")
    return sorted(first), sorted(second)


def die(how=signal.SIGKILL):
    os.kill(os.getpid(), how)


def hang():
    signal.pause()


def test_each_party_has_its_own_process(pids):
    def server():
        return dict((yield {}))

    first = Processes().run({"a": silo(pids), "b": silo(pids), "server": server()})["server"]
    assert len({os.getpid(), *first.values()}) == 3


@pytest.mark.parametrize(
    "end",
    [die, lambda: os._exit(3), lambda: sys.exit(0), lambda: die(signal.SIGTERM)],
    ids=["kill", "os", "exit", "term"],
)
def test_a_killed_party_is_silent_for_the_others(pids, end):
    with pytest.warns(RuntimeWarning, match="a is silent from now on: its process died"):
        learned = Processes().run({"a": silo(pids, end), "b": silo(pids), "server": server(pids)})
    assert learned == {"b": None, "server": (["a", "b"], ["b"])}


def test_a_killed_server_ends_the_exchange(pids):
    def mortal():
        note(pids)
        yield {}
        die()

    with pytest.warns(RuntimeWarning, match="server is silent"):
        assert Processes().run({"a": silo(pids), "server": mortal()}) == {"a": None}


@pytest.mark.parametrize("stop", [hang, lambda: die(signal.SIGSTOP)], ids=["hanging", "stopped"])
def test_a_hanging_party_is_killed_at_the_timeout(pids, stop):
    began = time.monotonic()
    with pytest.warns(RuntimeWarning, match="a is silent from now on: no answer within engine.timeout=1 seconds"):
        learned = Processes(timeout=1).run({"a": silo(pids, stop), "b": silo(pids), "server": server(pids)})
    assert learned == {"b": None, "server": (["a", "b"], ["b"])}
    assert 1 <= time.monotonic() - began < 10


def test_one_that_hangs_does_not_make_a_large_answer_late(pids):
    large = np.random.default_rng(0).random(10**6)

    def talker():
        note(pids)
        return (yield {"server": large})["server"]

    def stuck():
        note(pids)
        hang()
        yield

    def echo():
        note(pids)
        yield {"talker": (yield {})["talker"]}

    with pytest.warns(RuntimeWarning, match="a is silent"):
        learned = Processes(timeout=2).run({"a": stuck(), "talker": talker(), "server": echo()})
    assert learned["talker"].tobytes() == large.tobytes()


def test_mail_too_large_for_a_stopped_party_does_not_block_the_others(pids):
    def stopped():
        note(pids)
        yield {"server": "here"}

    def stopping_server():
        note(pids)
        inbox = yield {}
        os.kill(inbox["a"], signal.SIGSTOP)
        return (yield {"a": np.zeros(10**6), "b": "go on"})

    with pytest.warns(RuntimeWarning, match="a is silent"):
        learned = Processes(timeout=1).run({"a": silo(pids), "b": silo(pids), "server": stopping_server()})
    assert learned == {"b": None, "server": {"b": "second"}}


def test_a_plain_sum_without_a_killed_silo_aborts_cleanly(pids):
    from fedpriv.aggregation.plain import Plain
    from fedpriv.algorithms.base import Update

    def blocks():
        note(pids)
        die()
        yield

    updates = {"silo0": Update(iter(()), np.zeros(2)), "silo1": Update(blocks(), np.zeros(2))}
    memory = {name: {"weights": np.ones(1)} for name in updates}
    with (
        pytest.warns(RuntimeWarning, match="silo1"),
        pytest.raises(AggregationAborted, match="no message from silo1"),
    ):
        Processes().run(Plain().exchange(plan_for(Plain(), 2), updates, memory))


def test_what_a_party_raises_ends_all(pids):
    def broken():
        note(pids)
        yield {}
        raise KeyError("nothing here")

    with pytest.raises(RuntimeError) as caught:
        Processes().run({"server": broken(), "a": silo(pids), "stuck": silo(pids)})
    assert str(caught.value) == "server: KeyError: 'nothing here'"
    assert "in broken" in caught.value.__notes__[0]


def test_a_class_that_only_the_party_knows_comes_as_its_nearest_known_ancestor(pids):
    def broken():
        note(pids)

        class Late(ConfigError):
            pass

        raise Late("key", 3, "less than 3")
        yield

    with pytest.raises(ConfigError) as caught:
        Processes().run({"a": broken()})
    assert str(caught.value) == "key=3: less than 3"
    assert type(caught.value) is ConfigError
    assert isinstance(caught.value, FedprivError)


def test_what_cannot_be_sent_is_named(pids):
    def careless():
        note(pids)
        return object()
        yield

    with pytest.raises(RuntimeError, match=r"^a: .*MessageError: a message cannot hold builtins\.object"):
        Processes().run({"a": careless()})


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_nothing_is_left_when_this_process_is_interrupted(pids, error):
    def interrupt(*_):
        raise error

    def impatient():
        note(pids)
        yield {}
        os.kill(os.getppid(), signal.SIGALRM)
        hang()

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(error):
            Processes().run({"a": silo(pids, hang), "server": impatient()})
    finally:
        signal.signal(signal.SIGALRM, before)


def test_nothing_is_left_when_a_process_cannot_be_started(pids, monkeypatch):
    fork, forked = os.fork, []

    def limited():
        if len(forked) == 2:
            raise OSError("no more processes")
        forked.append(fork())
        return forked[-1]

    monkeypatch.setattr(os, "fork", limited)
    with pytest.raises(OSError, match="no more processes"):
        Processes().run({name: silo(pids) for name in "abcd"})
    assert len(forked) == 2
    for pid in forked:
        (pids / str(pid)).touch()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel kills orphans on Linux only")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_nothing_is_left_when_the_parent_dies(pids, how):
    program = f"""
        import os, pathlib, signal
        from fedpriv.engines.processes import Processes

        def busy():
            (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch()
            while True:
                pass
            yield

        def waiting():
            (pathlib.Path({str(pids)!r}) / str(os.getpid())).touch()
            yield {{}}

        Processes().run({{"a": busy(), "b": busy(), "c": waiting()}})
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stderr=subprocess.DEVNULL, start_new_session=True
    )
    wait_until(lambda: len(list(pids.iterdir())) == 3)
    if how == signal.SIGINT:
        os.killpg(parent.pid, how)  # as a terminal does
    else:
        parent.kill()
    parent.wait()
    # Orphans are waited for by whoever adopts them, which takes a moment.
    wait_until(lambda: not any(running(int(path.name)) for path in pids.iterdir()))
    for path in pids.iterdir():
        path.unlink()
    (pids / str(parent.pid)).touch()


def running(pid):
    """Whether the process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_party_computes_on_one_thread(pids):
    import torch

    def party():
        note(pids)
        torch.randn(300, 300) @ torch.randn(300, 300)
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]
        yield

    assert Processes().run({"a": party()}) == {"a": (1, "1")}


def test_large_answers_and_reports_come_whole(pids):
    memory = {"noise": np.random.default_rng(1).random(300_000), "keys": [2**3000 + 1, b"x" * 10**6]}

    def party():
        note(pids)
        memory["seen"] = (yield {"b": memory["noise"]})["b"]

    def other():
        note(pids)
        yield {"a": (yield {})["a"] + 1}

    learned = Processes().run({"a": reporting(party(), lambda: memory), "b": other()})
    assert "seen" not in memory
    assert encode(learned["a"][1]) == encode(memory | {"seen": memory["noise"] + 1})


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_impossible_timeouts_are_refused(timeout):
    with pytest.raises(ConfigError, match=r"^engine.timeout="):
        Processes(timeout)


def test_devices_that_a_fork_cannot_use_are_refused():
    Processes().check("cpu")
    with pytest.raises(ConfigError, match=r"^device=cuda:1: .*allowed: cpu$"):
        Processes().check("cuda:1")
