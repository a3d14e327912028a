"""The page about clusters, as it stands: two nodes with a token, runs on them, and what happens
when a party, a node or the head dies."""

import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
import time

import pandas as pd
import pytest
from page_blocks import ROOT
from ray_clusters import PRINTED_HEAD, kill, page_line
from waiting import wait_until

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

LIMIT = 30
"""Seconds beyond `engine.timeout` in which a run goes on or ends, as the page says."""
WORDS = (
    "its process died",
    r"its node 127\.0\.0\.2 has left the cluster",
    r"no answer within engine\.timeout=\d+ seconds",
    r"no room for it in the cluster, which lacks \d processors?",
    r"no process for it within \d+ seconds; the cluster is busy",
)

SESSION = """
import sys, warnings
import scripted_parties as play
from fedpriv.engines.ray import RayEngine

def say(text):
    print(text, flush=True)

warnings.showwarning = lambda message, *where: say(f"# {message}")
names = ("silo0", "silo1", "silo2", "server")
engine = RayEngine(address=sys.argv[1], timeout=3, cpus_per_party=1)
with engine.open(dict.fromkeys(names, play.Role()), {}) as session:
    for line in sys.stdin:
        if line == "reopen\\n":
            session.reopen(dict.fromkeys(session.lost, {}))
        tasks = dict.fromkeys(names[:3], (play.speaks_twice,)) | {"server": (play.listens_twice,)}
        told = play.run(session, tasks)
        say(f"{sorted(session.lost)} {told.get('server')}")
"""
EVERYBODY = ["silo0", "silo1", "silo2"]


class Session:
    """A program with four parties on a cluster, that plays an exchange for every line it reads."""

    def __init__(self, cluster):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SESSION, cluster.address],
            env=cluster.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, word="play"):
        """What it says from then on, up to who is lost and what the server heard."""
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            if line.startswith(("# ", "[")):
                said.append(line.strip())
            if line.startswith("["):
                return said
        return said


def test_a_party_a_node_and_the_head_of_the_pages_cluster_die(started_cluster):
    cluster = started_cluster(cpus=2)
    session = Session(cluster)
    assert session.ask() == [f"[] ({EVERYBODY}, {EVERYBODY})"]

    began = time.monotonic()
    kill(cluster.parties()[0])
    *told, last = session.ask()
    [name] = re.findall(r"# (\w+) is silent from now on: its process died$", "\n".join(told))
    assert last.startswith(f"['{name}'] ")
    assert session.ask("reopen") == [f"[] ({EVERYBODY}, {EVERYBODY})"]

    cluster.kill_node()
    *told, last = session.ask()
    gone = [re.fullmatch(r"# (\w+) is silent from now on: (.*)", line).groups() for line in told]
    assert {why for _, why in gone} == {"its node 127.0.0.2 has left the cluster"}
    lost = sorted(name for name, _ in gone)
    assert len(lost) == 2
    assert last.startswith(f"{lost} ")
    told = session.ask("reopen")
    assert told[0] == "# waiting for 2 processors"
    assert told[1:3] == [
        f"# {name} is silent from now on: no room for it in the cluster, which lacks 2 processors"
        for name in sorted(lost, key=("server", "silo2", "silo1", "silo0").index)
    ]
    assert told[3].startswith(f"{lost} ")

    cluster.kill_head()
    assert session.ask() == []
    assert session.process.wait(3 + LIMIT) == 1
    [line] = [
        line for line in session.process.stderr.read().splitlines() if line.startswith("fedpriv.")
    ]
    assert line == (
        f"fedpriv.errors.FedprivError: the head of the Ray cluster ({cluster.address}) has left; "
        "start it again, and continue with resume=<folder of the run> --trust-code"
    )
    assert time.monotonic() - began < 3 * (3 + LIMIT)


# -- whole runs ------------------------------------------------------------------------------------


def command(cluster, *more):
    """The page's run."""
    words = [word.replace(PRINTED_HEAD, cluster.address) for word in page_line("fedpriv engine")]
    return [sys.executable, "-m", *words, *more]


@pytest.mark.slow
def test_the_pages_run_is_that_of_one_process_and_needs_token_and_code(started_cluster, tmp_path):
    cluster = started_cluster(cpus=3)
    own = {"cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(
        command(cluster, "hydra.run.dir=many"), env=cluster.environment, check=False, **own
    )
    assert done.returncode == 0, done.stderr
    words = [sys.executable, "-m", "fedpriv", "rounds=3", "hydra.run.dir=one"]
    subprocess.run(words, check=True, env=cluster.environment, **own)
    for name in ("metrics.csv", "epsilon.csv", "model.safetensors"):
        assert (tmp_path / "many" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()

    other = cluster.environment | {"RAY_AUTH_TOKEN": "another"}
    done = subprocess.run(command(cluster), env=other, check=False, **own)
    assert done.returncode == 2
    assert "Ray cannot connect: it has another token; set RAY_AUTH_MODE=token" in done.stderr

    copy = tmp_path / "elsewhere" / "fedpriv"
    shutil.copytree(ROOT / "fedpriv", copy)
    shutil.copytree(ROOT / "conf", copy.with_name("conf"))
    with (copy / "errors.py").open("a") as file:
        file.write("# changed\n")
    other = cluster.environment | {"PYTHONPATH": str(copy.parent)}
    done = subprocess.run(command(cluster, "hydra.run.dir=x"), env=other, check=False, **own)
    assert done.returncode == 2
    assert re.search(
        r"fedpriv: the node of \w+ has fedpriv [\d.]+ \(code \w{12}\), and the coordinator has "
        r"fedpriv [\d.]+ \(code \w{12}\): install the same one on every node\n$",
        done.stderr,
    )

    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "fedpriv.py").write_text(
        "raise ImportError(\"No module named 'fedpriv'\")"
    )
    cluster.kill_node()
    cluster.environment["PYTHONPATH"] = str(tmp_path / "none")
    cluster.start_node()
    other = cluster.environment | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command(cluster, "hydra.run.dir=y"), env=other, check=False, **own)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "could not be started: its node has no fedpriv, or another one: install the same one on "
        "every node\n"
    )


TIMEOUT = 10
LONG = (
    f"engine.timeout={TIMEOUT}",
    *("aggregation=secagg", "preset.n_silos=3", "aggregation.cohort=2", "aggregation.threshold=2"),
    *("rounds=100000", "evaluate_every=500", "accountant=rdp", "preset.local_epochs=1"),
    "hydra.run.dir=run",
)


class Run:
    """A long run in a folder, begun or resumed."""

    def __init__(self, cluster, folder):
        self.folder = folder / "run"
        resumed = (self.folder / "config.yaml").exists()
        again = [sys.executable, "-m", "fedpriv", "resume=run", "--trust-code"]
        self.said = (folder / "said").open("w+")
        self.process = subprocess.Popen(
            again if resumed else command(cluster, *LONG),
            cwd=folder,
            env=cluster.environment,
            stdout=subprocess.DEVNULL,
            stderr=self.said,
        )

    def says(self):
        self.said.seek(0)
        return self.said.read()

    def sums(self):
        """How many rounds of the folder have a sum."""
        with contextlib.suppress(OSError, pd.errors.EmptyDataError, pd.errors.ParserError):
            return int(pd.read_csv(self.folder / "timings.csv")["aborted"].isna().sum())
        return 0

    def ended(self):
        return self.process.poll() is not None

    def goes_on(self, rounds=3, seconds=120):
        """Wait for so many sums. Whether they came before the run ended."""
        goal = self.sums() + rounds
        wait_until(lambda: self.ended() or self.sums() >= goal, seconds)
        return not self.ended()

    def status(self):
        return json.loads((self.folder / "status.json").read_text())


@pytest.mark.slow
def test_twenty_kills(started_cluster, tmp_path):
    """Parties, nodes and heads of the page's cluster die while it runs. Each time the run goes on
    or ends in time, and says why in words; what has ended is resumed."""
    rng = random.Random(0)
    kills = ["party"] * 9 + ["node"] * 6 + ["head"] * 5
    rng.shuffle(kills)
    cluster = started_cluster(cpus=3)
    run = Run(cluster, tmp_path)
    outcomes = []
    for kind in kills:
        assert run.goes_on(), run.says()
        time.sleep(rng.random())
        began = time.monotonic()
        if kind == "party":
            kill(rng.choice(cluster.parties()))
        elif kind == "node":
            cluster.kill_node()
        else:
            cluster.kill_head()
        went_on = run.goes_on(seconds=TIMEOUT + LIMIT) if kind != "head" else False
        if kind == "head":
            run.process.wait(TIMEOUT + LIMIT)
        outcomes.append((kind, went_on, time.monotonic() - began))
        print(outcomes[-1])
        status = run.status()
        for lost in status.get("lost_parties", {}).values():
            for why in lost.values():
                assert any(re.fullmatch(words, why) for words in WORDS), why
        if not went_on:
            said = run.says().splitlines()[-1]
            assert run.process.returncode == 2, said
            assert re.search(r"the head of the Ray cluster|lost|no answer", said), said
            assert status["state"] == "failed"
        if kind == "head":
            cluster.close()
            cluster.start_head()
        if kind != "party":
            cluster.start_node()
        if not went_on:
            run = Run(cluster, tmp_path)
    assert sum(went_on for kind, went_on, _ in outcomes if kind == "party") == 9
    kill(run.process.pid)
    run.process.wait()
