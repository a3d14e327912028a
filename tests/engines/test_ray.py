"""Parties as actors of Ray: that die, hang or compute for long, what their processes hold, and what
is left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import scripted_parties as play
from page_blocks import ROOT
from ray_clusters import STORE
from refusals import refused
from waiting import wait_until

from fedpriv.engines import ray as engine_module
from fedpriv.engines.bundles import bundled
from fedpriv.engines.ray import RayEngine
from fedpriv.errors import ConfigError, RefusedError
from fedpriv.parties.messages import encode

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

NAMES = ("a", "b", "c", "server")


@pytest.fixture(scope="module")
def session(cluster):
    """Parties with belongings, on one cluster for the whole module."""
    roles = {name: play.Role(np.random.default_rng(i).bytes(10**6)) for i, name in enumerate(NAMES)}
    with RayEngine(address=cluster.address).open(roles, {}) as session:
        yield session


def everybody(*task):
    return dict.fromkeys(NAMES, task)


def running(pid):
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_each_party_has_its_own_process_without_torch(session):
    assert len({os.getpid(), *play.run(session, everybody(play.pid)).values()}) == 1 + len(NAMES)
    for described in play.run(session, everybody(play.describes_its_process)).values():
        assert described == {"threads": "1", "folder": os.getcwd(), "torch": False}
    assert (session.elapsed([]), session.elapsed([1.0, 3.0])) == (0.0, 3.0)  # side by side


def test_parties_import_what_the_coordinator_can(session, tmp_path, monkeypatch):
    (tmp_path / "module_of_a_user.py").write_text("ANSWER = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    session.reopen({"c": {}})
    assert play.run(session, {"c": (play.imports, "module_of_a_user")}) == {"c": 42}


@pytest.mark.parametrize("how", ["dies", "exits"])
def test_a_party_without_a_process_is_silent_and_the_others_go_on(session, how):
    tasks = {
        "a": (play.speaks_twice, how),
        "b": (play.speaks_twice,),
        "server": (play.listens_twice,),
    }
    with pytest.warns(RuntimeWarning, match="^a is silent from now on: its process died$"):
        learned = play.run(session, tasks)
    assert learned == {"b": None, "server": (["a", "b"], ["b"])}
    assert session.lost == {"a"}
    again = dict.fromkeys("abc", (play.speaks_twice,)) | {"server": (play.listens_twice,)}
    assert play.run(session, again) == {"b": None, "c": None, "server": (["b", "c"], ["b", "c"])}
    assert session.checkpoints(NAMES) == {"b": {}, "c": {}, "server": {}}
    session.reopen({"a": {"model": np.ones(2)}})
    assert session.lost == frozenset()
    assert set(play.run(session, {"a": (play.tells_notes,)})["a"]) == {"model"}
    assert play.run(session, again)["server"] == (["a", "b", "c"], ["a", "b", "c"])


def test_a_killed_server_ends_the_exchange(session):
    with pytest.warns(RuntimeWarning, match="server is silent"):
        assert play.run(
            session, {"a": (play.speaks_twice,), "server": (play.speaks_twice, "dies")}
        ) == {"a": None}
    session.reopen({"server": {}})


@pytest.mark.parametrize(
    ("garbling", "why"),
    [
        ((play.garbles, b""), "cannot be read .*ends too early"),
        ((play.garbles, bundled({"b": 1})[:-1]), "cannot be read .*the bundle ends too early"),
        ((play.garbles, encode(("raised", "text"))), "cannot be read .*'raised' with str to wake"),
        ((play.garbles_the_length,), "a reply that claims"),
    ],
)
def test_a_party_whose_replies_are_none_is_silent_and_the_others_go_on(session, garbling, why):
    tasks = {"a": garbling, "b": (play.speaks_twice,), "server": (play.listens_twice,)}
    with pytest.warns(RuntimeWarning, match=f"a is silent from now on: .*{why}"):
        assert play.run(session, tasks)["server"][1] == ["b"]
    assert session.lost == {"a"}
    session.reopen({"a": {}})
    assert play.run(session, {"a": (play.leaves, "well")}) == {"a": "well"}


def test_a_party_that_refuses_is_absent_and_the_others_go_on(session):
    refusal = (play.fails, RefusedError, "a refuses round 3")
    tasks = {"a": refusal, "b": (play.speaks_twice,), "server": (play.listens_twice,)}
    assert play.run(session, tasks)["server"][1] == ["b"]
    assert not session.lost
    assert "a refuses round 3" in str(session.refusals["a"])
    with pytest.raises(RefusedError, match="a refuses round 3"):
        play.run(session, {"a": refusal})
    assert play.run(session, {"a": (play.leaves, "well")}) == {"a": "well"}


def test_what_a_party_raises_has_its_name_and_its_traceback(session):
    with pytest.raises(RuntimeError) as caught:
        play.run(
            session, {"server": (play.fails, KeyError, "nothing here"), "a": (play.speaks_twice,)}
        )
    assert str(caught.value) == "server: KeyError: 'nothing here'"
    assert "in fails" in caught.value.__notes__[0]


def test_a_class_that_only_the_party_knows_comes_as_its_nearest_known_ancestor(session):
    with pytest.raises(ConfigError) as caught:
        play.run(session, {"a": (play.fails_with_a_class_of_its_own,)})
    assert str(caught.value) == "key=3: less than 3"
    assert type(caught.value) is ConfigError


def test_what_cannot_be_sent_or_returned_is_named(session):
    with pytest.raises(
        RuntimeError, match=r"^a: .*MessageError: a message cannot hold builtins\.set"
    ):
        play.run(session, {"a": (play.tells, {1})})
    with pytest.raises(
        RuntimeError, match=r"^a: .*MessageError: a message cannot hold _thread\.lock"
    ):
        play.run(session, {"a": (play.returns_a_lock,)})


def test_secrets_and_records_are_in_no_other_process(session):
    """Each party draws a secret, is given records of its own and sends all of them: a to the
    server, the others to themselves. Then all processes search all of their memory. Whoever drew it
    finds it, so the search works."""
    needles = []
    for script in (play.hides, play.hides_belongings):
        told = play.run(session, everybody(script))
        needles += [told[name] for name in NAMES]
    play.run(
        session, {name: (play.says_belongings, "server" if name == "a" else name) for name in NAMES}
    )
    found = play.run(session, everybody(play.occurrences, needles))
    held = {
        name: [owner for owner, count in zip(2 * NAMES, counts) if count]
        for name, counts in found.items()
    }
    assert held == {
        "a": ["a", "a"],
        "b": ["b", "b"],
        "c": ["c", "c"],
        "server": ["server", "a", "server"],
    }
    assert play.occurrences(None, needles[: len(NAMES)]) == [0] * len(
        NAMES
    )  # the coordinator has no secret


def test_a_silent_party_is_lost_and_one_that_computes_is_not(cluster):
    """a sleeps, b computes for longer than the timeout, c is stopped as a whole."""
    timeout = 2.0
    with RayEngine(address=cluster.address, timeout=timeout).open(
        dict.fromkeys(NAMES, play.Role()), {}
    ) as session:
        stopped = play.run(session, {"c": (play.pid,)})["c"]
        tasks = {
            "a": (play.speaks_twice, "sleeps", 60),
            "b": (play.speaks_twice, "computes", 2.5 * timeout),
            "c": (play.speaks_twice, "dies", signal.SIGSTOP),
            "server": (play.listens_twice,),
        }
        began = time.monotonic()
        with pytest.warns(
            RuntimeWarning, match="is silent from now on: no answer within engine.timeout=2 s"
        ) as told:
            learned = play.run(session, tasks)
        assert 2.5 * timeout <= time.monotonic() - began < 20
        assert learned == {"b": None, "server": (["a", "b", "c"], ["b"])}
        assert sorted(str(warning.message)[:2] for warning in told) == ["a ", "c "]
        assert session.lost == {"a", "c"}
    wait_until(lambda: not running(stopped))


def test_nothing_is_left_when_a_session_ends(cluster):
    with RayEngine(address=cluster.address).open(
        {"a": play.Role(), "b": play.Role()}, {}
    ) as session:
        pids = [*play.run(session, {"a": (play.pid,), "b": (play.pid,)}).values()]
        pids.append(play.run(session, {"a": (play.starts_a_child,)})["a"])
        assert all(map(running, pids))
    wait_until(lambda: not any(map(running, pids)))
    session.close()  # once more is no mistake


def test_a_cluster_of_two_nodes(cluster):
    node = cluster.add_node(num_cpus=2, num_gpus=2, object_store_memory=STORE)
    try:
        cluster.wait_for_nodes()
        with RayEngine(address=cluster.address, cpus_per_party=1).open(
            dict.fromkeys(NAMES, play.Role()), {}
        ) as session:
            assert len(set(play.run(session, everybody(play.runs_on)).values())) == 2
            tasks = {name: (play.multiplies, i) for i, name in enumerate("abc", 1)} | {
                "server": (play.adds,)
            }
            assert play.run(session, tasks) == {"a": 6, "b": 12, "c": 18, "server": None}
        with RayEngine(address=cluster.address, gpus_per_party=0.5).open(
            dict.fromkeys(NAMES, play.Role()), {}
        ) as session:
            assert sorted(play.run(session, everybody(play.sees_gpus)).values()) == [
                "0",
                "0",
                "1",
                "1",
            ]
    finally:
        cluster.remove_node(node)


@pytest.mark.parametrize(
    ("key", "each", "needs"),
    [
        ("cpus_per_party", 100, "400 CPUs, and Ray has 2"),
        ("gpus_per_party", 0.5, "2 GPUs, and Ray has 0"),
    ],
)
def test_what_a_cluster_does_not_have_is_refused(cluster, key, each, needs):
    with pytest.raises(ConfigError, match=rf"^engine\.{key}={each}: all parties need {needs}$"):
        RayEngine(address=cluster.address, **{key: each}).open(
            dict.fromkeys(NAMES, play.Role()), {}
        )


@pytest.mark.parametrize(
    ("cpus", "gpus", "places", "words"),
    [
        (0.0, 0.0, float("inf"), "a node"),
        (1.0, 0.0, 7, "3 processors"),
        (2.0, 0.0, 3, "6 processors"),  # a party is on one node
        (0.3, 0.0, 23, "0.9 processors"),
        (0.0, 0.5, 4, "1.5 GPUs"),
        (2.0, 0.5, 2, "6 processors and 1.5 GPUs"),
    ],
)
def test_room_is_counted_by_node(cpus, gpus, places, words):
    from fedpriv.engines.ray_cluster import Node, Share

    share = Share(cpus, gpus)
    nodes = [Node("a", "10.0.0.1", 1, 3.0, 0.0), Node("b", "10.0.0.2", 1, 4.0, 2.0)]
    assert share.places(nodes) == places
    assert share.of(3) == words


def test_a_second_cluster_is_refused(session):
    with pytest.raises(
        ConfigError, match=r"^engine\.address=null: this process already uses engine.address="
    ):
        RayEngine().open({}, {})


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "no.such.host.invalid:6379", "somewhere", "ray://127.0.0.1:10001"]
)
def test_addresses_that_cannot_be_reached_are_refused(address):
    for use in (
        lambda engine: engine.check("cpu"),
        lambda engine: engine.open({"a": play.Role()}, {}),
    ):
        with pytest.raises(ConfigError) as caught:
            use(RayEngine(address=address))
        assert str(caught.value).startswith(f"engine.address={address}: no cluster there (")
        assert "\n" not in str(caught.value)


def test_without_ray_it_says_what_to_install(monkeypatch):
    RayEngine().check("cpu")
    monkeypatch.setattr(engine_module, "find_spec", lambda name: None)
    for use in (lambda: RayEngine().check("cpu"), lambda: RayEngine().open({}, {})):
        line = refused(use, error=ConfigError, start="engine=ray: Ray is not installed; ")
        assert line.endswith(" install -e '" + str(ROOT) + "[ray]'")


def test_a_party_with_its_own_gpu_has_no_second(monkeypatch):
    RayEngine().check("cuda:1")
    RayEngine(gpus_per_party=0.5).check("cuda")
    with pytest.raises(ConfigError, match=r"^device=cuda:1: .*its own GPUs only$"):
        RayEngine(gpus_per_party=0.5).check("cuda:1")


@pytest.mark.parametrize(
    ("key", "value"),
    [("timeout", value) for value in (0, -1, float("inf"), float("nan"))]
    + [
        (f"{kind}_per_party", value)
        for kind in ("cpus", "gpus")
        for value in (-1, 1.5, float("inf"), float("nan"))
    ]
    + [("threads", 0)],
)
def test_impossible_values_are_refused(key, value):
    with pytest.raises(ConfigError, match=rf"^engine\.{key}="):
        RayEngine(**{key: value})


# -- a private instance ----------------------------------------------------------------------------

MARK = "FEDPRIV_TEST_MARK"


class Program:
    """A program with a private instance, as a terminal would start it; `roles` are those of two
    parties."""

    def __init__(self, folder, body):
        self.folder, self.mark = folder, f"{MARK}={uuid.uuid4().hex}".encode()
        code = f"""
            import os, signal, sys, time
            # a shell's job in the background ignores the signal
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.path.insert(0, {os.path.dirname(play.__file__)!r})
            import scripted_parties as play
            from fedpriv.engines.ray import RayEngine
            roles = dict.fromkeys(("a", "b"), play.Role())
        """
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("RAY_")
        }
        environment |= {"HOME": folder, "TMPDIR": folder} | dict([self.mark.decode().split("=")])
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code) + textwrap.dedent(body)],
            env=environment,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def processes(self, kind=""):
        """Ids of all processes that it has started, itself included. kind: part of their
        command.
        """
        return [
            int(path.name)
            for path in Path("/proc").iterdir()
            if path.name.isdigit() and self._started(path, kind)
        ]

    def _started(self, path, kind):
        try:
            mine = self.mark in (path / "environ").read_bytes().split(b"\0")
            return mine and kind in (path / "cmdline").read_text()
        except OSError:
            return False


@pytest.fixture
def program():
    """Starts a `Program`."""
    programs = []
    # Not pytest's folder: names of sockets must be short.
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield lambda body: programs.append(Program(folder, body)) or programs[0]
        for pid in programs[0].processes():
            os.kill(pid, signal.SIGKILL)


def test_nothing_is_left_of_a_private_instance_after_an_interrupt(program):
    """It reaches the whole group, as from a terminal; what happens then is for the program to
    decide."""
    started = program(
        """
        def defined_here(player):
            return "defined here"
            yield

        try:
            with RayEngine(threads=2).open(roles, {}) as session:
                told = {"a": (play.computes_on,), "b": (play.describes_its_process,)}
                print(play.run(session, told))
                print(play.run(session, {"a": (defined_here,)}), flush=True)
                play.run(session, dict.fromkeys(roles, (play.sleeps_on,)))
        except KeyboardInterrupt:
            print("interrupted", os.listdir(os.environ["TMPDIR"]), flush=True)
            sys.stdin.readline()
        """
    )
    lines = [started.process.stdout.readline() for _ in range(2)]
    described = {"threads": "2", "folder": os.path.realpath(started.folder), "torch": False}
    learned = [{"a": 2, "b": described}, {"a": "defined here"}]
    assert lines == [f"{learned[0]}\n", f"{learned[1]}\n"], started.process.stderr.read()
    assert len(started.processes()) > 3
    os.killpg(started.process.pid, signal.SIGINT)
    assert started.process.stdout.readline() == "interrupted []\n"
    wait_until(lambda: started.processes() == [started.process.pid], 5)
    said = started.process.communicate("\n", timeout=60)
    assert (*said, started.process.returncode) == ("", "", 0)


def test_no_party_is_left_of_a_killed_program(program):
    """Ray's two agents try for a minute to reach what died with the program, and then end as
    well.
    """
    started = program(
        """
        with RayEngine().open(roles, {}) as session:
            print("begins", flush=True)
            play.run(session, dict.fromkeys(roles, (play.sleeps_on,)))
        """
    )
    assert started.process.stdout.readline() == "begins\n", started.process.stderr.read()
    assert started.processes("PartyProcess")
    started.process.kill()
    assert started.process.communicate(timeout=60) == ("", "")
    wait_until(lambda: started.processes() == started.processes("Agent"))


KILLED = (
    ("uldp_avg_w", "plain"),
    ("scaffold", "masked"),
    ("spider", "plain"),
    ("cdp_fedavg", "secagg"),
    ("secured_fl", "admm"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "aggregation"), KILLED)
def test_a_killed_run_goes_on_to_the_bits_of_one_process(algo, aggregation, cluster, tmp_path):
    """kill -9 of the run in some round, its parties on other processes; then both again."""
    words = (
        "rounds=12",
        "preset.n_users=9",
        "preset.n_silos=9",
        "accountant=rdp",
        "allocator=uniform",
    )
    command = [sys.executable, "-m", "fedpriv"]
    settings = [*words, f"algo={algo}", f"aggregation={aggregation}"]
    subprocess.run(
        [*command, *settings, "hydra.run.dir=whole"], cwd=tmp_path, check=True, capture_output=True
    )
    over_ray = [
        *command,
        *settings,
        "engine=ray",
        f"engine.address={cluster.address}",
        "hydra.run.dir=cut",
    ]
    process = subprocess.Popen(
        over_ray, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    journal, last = (
        tmp_path / "cut" / "rounds_begun.csv",
        sum(map(len, (algo, aggregation))) % 5 + 3,
    )
    wait_until(
        lambda: (
            process.poll() is not None
            or (journal.exists() and journal.read_bytes().count(b"\n") > last)
        ),
        120,
    )
    assert process.poll() is None, process.communicate()[1]
    process.kill()
    process.wait()
    subprocess.run([*command, "resume=cut"], cwd=tmp_path, check=True, capture_output=True)
    for name in ("metrics.csv", "epsilon.csv", "model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), (
            name
        )


def test_nobody_else_can_enter_a_private_instances_folder(monkeypatch):
    """Ray opens the folder that it is given to every user of the machine."""
    from fedpriv.engines import ray_cluster

    def starts(address, *, _temp_dir, _plasma_directory, **options):
        os.chmod(_temp_dir, 0o777)
        assert _plasma_directory == _temp_dir
        outside = os.path.dirname(_temp_dir)
        assert os.stat(outside).st_mode & 0o777 == 0o700
        assert len(os.path.join(outside, "r")) <= ray_cluster.LONGEST
        raise RuntimeError("started")

    monkeypatch.setattr(ray_cluster, "initialise", starts)
    monkeypatch.setattr(ray_cluster.ray, "shutdown", lambda **options: None)
    with pytest.raises(RuntimeError, match="started"):
        ray_cluster.Connection().start(None)
