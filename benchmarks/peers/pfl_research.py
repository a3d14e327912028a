"""pfl-research beside ours: a round of federated averaging with clipped models and noise, every user a silo of its own.

    python -m venv /elsewhere/pfl && /elsewhere/pfl/bin/pip install 'pfl[pytorch]==0.6.0'
    python -m benchmarks.peers.pfl_research /elsewhere/pfl/bin/python

Each in a process of its own, on one thread, in turns, on the same users, records, batch sizes and epochs, with the
same network, without evaluation. Ours is all of a round through the protocol: every user's silo trains, clips, adds
its noise and sends; pfl-research adds noise centrally and has no messages. Records: see `benchmarks.local_training`.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks._apart import apart
from benchmarks.local_training import load
from benchmarks.peers._report import write


@dataclass(frozen=True)
class Case:
    """goal: least ratio."""

    users: int
    goal: float
    epochs: int = 1
    turns: int = 5


CASES = [Case(100, 1.5), Case(1000, 3)]
COLUMNS = ("users", "epochs", "fedpriv", "pfl-research", "ratio", "least", "most", "goal")


def main(python: str) -> None:
    """Every case in a process of its own. python: an interpreter that has pfl and torch."""
    rows = []
    for case in CASES:
        rows.append(dict(zip(COLUMNS, (case.users, case.epochs, *apart(measure, case, python), case.goal))))
        print("  ".join(f"{key} {value:.3g}" for key, value in rows[-1].items()), flush=True)
    print(write("pfl_research", rows))


def measure(case: Case, python: str) -> tuple[float, float, float, float, float]:
    """Median processor seconds a round of ours and of theirs, and median, least and largest ratio of a turn."""
    import torch

    torch.set_num_threads(1)
    kind, records = load("mnist")
    user = np.random.default_rng(0).permutation(np.arange(len(records)) % case.users)
    with tempfile.TemporaryDirectory() as folder, ours(case, kind, replace(records, user=user)) as simulation:
        file = Path(folder) / "records.npz"
        np.savez(file, x=records.x, y=records.y, user=user)
        script, settings = Path(__file__).with_name("_pfl.py"), {"epochs": case.epochs, "clip": 0.1, "noise": 0.5}
        command = [python, str(script), str(file), json.dumps(settings)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
            assert peer.stdin
            assert peer.stdout
            state, seconds = simulation.state, []
            for turn in range(case.turns + 1):
                since = time.process_time()
                state = simulation.run_round(simulation.queries(turn + 1), state).state
                own = time.process_time() - since
                print("turn", file=peer.stdin, flush=True)
                told = next(line for line in peer.stdout if line.startswith("seconds "))  # between its own reports
                seconds.append((own, float(told.split()[1])))
            peer.kill()
    del seconds[0]  # the first meets every shape, and compiles
    ratios = [other / own for own, other in seconds]
    own, other = (statistics.median(column) for column in zip(*seconds))
    return own, other, statistics.median(ratios), min(ratios), max(ratios)


def ours(case: Case, kind, records):
    """A run of the command's configuration, on the benchmark's records, whose users are known."""
    from fedpriv.compose import one_experiment
    from fedpriv.data.allocate import ByUser
    from fedpriv.data.base import Corpus
    from fedpriv.simulation import prepare

    class InMemory(type(kind)):
        natural_users = True

        def load(self, streams):
            return Corpus(records, type(records)(records.x[:100], records.y[:100], user=records.user[:100]))

    words = (f"preset.n_users={case.users}", f"preset.n_silos={case.users}", f"preset.local_epochs={case.epochs}")
    exp = one_experiment("algo=uldp_avg", "data=mnist", *words)
    whole = ByUser(case.users, case.users, local_test=0.0)
    return prepare(replace(exp, data=InMemory(**vars(exp.data)), allocator=whole))


if __name__ == "__main__":
    main(*sys.argv[1:])
