"""Other simulators beside ours: a round of federated averaging with clipped models and noise, every
user a silo.

    python -m venv /elsewhere/pfl && /elsewhere/pfl/bin/pip install 'pfl[pytorch]==0.6.0'
    python -m benchmarks.peers.one_user_silos pfl_research /elsewhere/pfl/bin/python

    python -m venv /elsewhere/flower && /elsewhere/flower/bin/pip install 'flwr[simulation]==1.41.0'
    torch psutil python -m benchmarks.peers.one_user_silos flower /elsewhere/flower/bin/python

Each runs in its own process on one thread, in alternating turns. Users, records, batch sizes,
epochs and network are the same; nothing is evaluated. Ours is a whole round through the protocol:
every user's silo trains, clips, adds its noise and sends. The others clip and add noise centrally.
pfl-research has no messages. Flower sends them to one client at a time in a Ray process, whose work
is counted. Records: see `benchmarks.local_training`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared
from benchmarks._rounds import in_memory, timed
from benchmarks.local_training import load
from benchmarks.peers._report import shown, write


@dataclass(frozen=True)
class Case:
    """goal: least ratio; 0: none is set."""

    users: int
    goal: float
    epochs: int = 1
    turns: int = 5


CASES = {"pfl_research": [Case(100, 1.5), Case(1000, 3)], "flower": [Case(100, 0), Case(1000, 0)]}
SCRIPTS = {"pfl_research": "_pfl.py", "flower": "_flower.py"}


def main(peer: str, python: str) -> None:
    """Every case in a process of its own. peer: of `CASES`; python: an interpreter that has it, and
    torch."""
    columns = ("users", "epochs", "fedpriv", peer, "ratio", "least", "most", "goal")
    rows = []
    for case in CASES[peer]:
        measured = in_fresh_process(measure, case, python, SCRIPTS[peer])
        rows.append(shown(dict(zip(columns, (case.users, case.epochs, *measured, case.goal)))))
    print(write(peer, rows))


def measure(case: Case, python: str, script: str) -> tuple[float, float, float, float, float]:
    """Median processor seconds a round of ours and of theirs, and median, least and largest ratio
    of a turn."""
    import torch

    torch.set_num_threads(1)
    data_set, records = load("mnist")
    user = np.random.default_rng(0).permutation(np.arange(len(records)) % case.users)
    with (
        tempfile.TemporaryDirectory() as folder,
        ours(case, data_set, replace(records, user=user)) as prepared,
    ):
        file = Path(folder) / "records.npz"
        np.savez(file, x=records.x, y=records.y, user=user)
        settings = {"epochs": case.epochs, "clip": 0.1, "noise": 0.5}
        command = [python, str(Path(__file__).with_name(script)), str(file), json.dumps(settings)]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as peer:
            assert peer.stdin
            assert peer.stdout
            state = prepared.state
            turns = []
            for turn in range(case.turns + 1):
                state, own = timed(prepared, state, turn + 1)
                print("turn", file=peer.stdin, flush=True)
                line = next(
                    line for line in peer.stdout if line.startswith("seconds ")
                )  # between its own reports
                turns.append((own, float(line.split()[1])))
            peer.stdin.close()
            peer.stdout.read()  # it ends, and what it has started with it
    return compared(turns[1:])  # the first turn warms up


def ours(case: Case, data_set, records):
    """A run of the command's configuration, on the benchmark's records, whose users are known."""
    from fedpriv.data.allocate import ByUser

    words = (
        f"preset.n_users={case.users}",
        f"preset.n_silos={case.users}",
        f"preset.local_epochs={case.epochs}",
    )
    whole = ByUser(case.users, case.users, local_test=0.0)
    return in_memory(data_set, records, "algo=uldp_avg", "data=mnist", *words, allocator=whole)


if __name__ == "__main__":
    main(*sys.argv[1:])
