"""A sweep of 7 epsilons, 5 step sizes and 4 clips: all runs side by side against one after the
other.

The network has 5 hidden units, on Wisconsin breast cancer in two silos, 25 rounds. `one by one` is
Hydra's own launcher, as `fedpriv -m` takes it; `commands` is a shell's loop over `fedpriv`, of
which `SLICE` runs are timed and counted for all. All of them write every file of every run, but the
basic launcher and the loop Hydra's own records too. Seconds hold everything, imports too. The last
column is the largest difference in any number of metrics.csv and epsilon.csv.
"""

from __future__ import annotations

import contextlib
import csv
import io
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

from benchmarks._apart import apart

EPSILONS = "0.75,1,1.5,3,6,12,18"
STEPS = "0.05,0.1,0.2,0.5,1"
CLIPS = "0.5,1,2,4"
RUNS = 7 * 5 * 4
SLICE = 3
GOAL = 10
STEP_SIZES = {
    "minibatch_sgd": "global_lr",
    "spider": "global_lr",
    "prox_svrg": "global_lr",
    "local_sgd": "local_lr",
}
PROBLEM = (
    "data=breast_cancer",
    "model=mlp",
    "model.hidden=[5]",
    "allocator=uniform",
    "allocator.n_silos=2",
)


def main() -> None:
    """Run all sweeps of every algorithm, and print a table."""
    print(
        f"{'algorithm':>14} {'commands':>21} {'one by one':>21} {'side by side':>21} "
        f"{'ratio':>11} {'goal':>5} "
        f"{'difference':>11}"
    )
    print(
        f"{'':>14} {'s':>10} {'processor':>10} {'s':>10} {'processor':>10} {'s':>10} "
        f"{'processor':>10} "
        f"{'s':>5} {'proc':>5}"
    )
    for algo in STEP_SIZES:
        with tempfile.TemporaryDirectory() as folder:
            loop, loop_cpu = apart(measure_loop, algo, str(Path(folder) / "loop"))
            times = {}
            for launcher in ("basic", "side_by_side"):
                times[launcher] = apart(measure, algo, launcher, str(Path(folder) / launcher))
            (slow, slow_cpu), (fast, fast_cpu) = times["basic"], times["side_by_side"]
            differs = difference(Path(folder) / "basic", Path(folder) / "side_by_side")
        print(
            f"{algo:>14} {loop:10.1f} {loop_cpu:10.1f} {slow:10.1f} {slow_cpu:10.1f} "
            f"{fast:10.1f} {fast_cpu:10.1f} "
            f"{slow / fast:5.1f} {slow_cpu / fast_cpu:5.1f} {GOAL:>5} "
            f"{differs:11.1e}",
            flush=True,
        )


def words(algo: str) -> tuple[str, ...]:
    """What all runs of an algorithm's sweep share."""
    return f"algo={algo}", *PROBLEM, "rounds=25"


def measure(algo: str, launcher: str, folder: str) -> tuple[float, float]:
    """Seconds, and seconds of the processor, that the sweep takes."""
    since = time.perf_counter()
    busy = time.process_time()
    from fedpriv.cli import main as fedpriv

    grid = (f"algo.epsilon={EPSILONS}", f"algo.{STEP_SIZES[algo]}={STEPS}", f"algo.clip={CLIPS}")
    sys.argv = ["fedpriv"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        fedpriv(
            ["-m", *words(algo), *grid, f"hydra/launcher={launcher}", f"hydra.sweep.dir={folder}"]
        )
    return time.perf_counter() - since, time.process_time() - busy


def measure_loop(algo: str, folder: str) -> tuple[float, float]:
    """The same of one command a run, from its first `SLICE` runs."""
    since = time.perf_counter()
    grid = product(EPSILONS.split(","), STEPS.split(","), CLIPS.split(","))
    for number, (epsilon, step, clip) in enumerate(islice(grid, SLICE)):
        values = f"algo.epsilon={epsilon}", f"algo.{STEP_SIZES[algo]}={step}", f"algo.clip={clip}"
        command = [
            sys.executable,
            "-m",
            "fedpriv",
            *words(algo),
            *values,
            f"hydra.run.dir={folder}/{number}",
        ]
        subprocess.run(command, check=True, capture_output=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (time.perf_counter() - since) * RUNS / SLICE, (
        used.ru_utime + used.ru_stime
    ) * RUNS / SLICE


def difference(here: Path, there: Path) -> float:
    """The largest between numbers at the same place in the tables of two sweeps."""
    largest = 0.0
    for run in range(RUNS):
        for table in ("metrics.csv", "epsilon.csv"):
            cells = [_numbers(folder / str(run) / table) for folder in (here, there)]
            if len(cells[0]) != len(cells[1]):
                raise ValueError(f"run {run}: the sweeps have {table} of different lengths")
            largest = max([largest, *(abs(one - other) for one, other in zip(*cells))])
    return largest


def _numbers(path: Path) -> list[float]:
    found = []
    with open(path, newline="") as file:
        for row in csv.reader(file):
            for cell in row:
                with contextlib.suppress(ValueError):
                    found.append(float(cell))
    return found
