"""A sweep of 7 epsilons, 5 step sizes and 4 clips: all runs side by side, beside one by one.

The network has 5 hidden units, on Wisconsin breast cancer in two silos, 25 rounds. `one by one` is
Hydra's own launcher, as `fedpriv -m` uses it. `commands` is a shell's loop over `fedpriv`; `SLICE`
of its runs are timed and scaled. All write every file of every run; the basic launcher and the loop
also write Hydra's records. Both launchers take alternating turns, each in its own process; seconds
include imports. The last column is the largest difference in any number of metrics.csv and
epsilon.csv.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice, product
from pathlib import Path

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared

EPSILONS = "0.75,1,1.5,3,6,12,18"
STEPS = "0.05,0.1,0.2,0.5,1"
CLIPS = "0.5,1,2,4"
TURNS = 2
ROUNDS = 25
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
            loop, loop_cpu = in_fresh_process(measure_loop, algo, str(Path(folder) / "loop"))
            times: dict[str, list[tuple[float, float]]] = {"basic": [], "side_by_side": []}
            for turn in range(TURNS):
                for launcher, taken in times.items():
                    place = str(Path(folder) / f"{launcher}{turn}")
                    taken.append(in_fresh_process(measure, algo, launcher, place))
            differs = difference(Path(folder) / "basic0", Path(folder) / "side_by_side0")
        clock, processor = (
            [(fast[column], slow[column]) for slow, fast in zip(*times.values())]
            for column in (0, 1)
        )
        fast, slow, ratio, *_ = compared(clock)
        fast_cpu, slow_cpu, ratio_cpu, *_ = compared(processor)
        print(
            f"{algo:>14} {loop:10.1f} {loop_cpu:10.1f} {slow:10.1f} {slow_cpu:10.1f} "
            f"{fast:10.1f} {fast_cpu:10.1f} "
            f"{ratio:5.1f} {ratio_cpu:5.1f} {GOAL:>5} "
            f"{differs:11.1e}",
            flush=True,
        )


def words(algo: str) -> tuple[str, ...]:
    """Overrides that all runs of an algorithm's sweep share."""
    return f"algo={algo}", *PROBLEM, f"rounds={ROUNDS}"


def measure(algo: str, launcher: str, folder: str) -> tuple[float, float]:
    """Seconds of the clock and of the processor for a sweep."""
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
    """The same for one command a run, scaled from the first `SLICE` runs."""
    since = time.perf_counter()
    grid = product(EPSILONS.split(","), STEPS.split(","), CLIPS.split(","))
    for number, (epsilon, step, clip) in enumerate(islice(grid, SLICE)):
        values = f"algo.epsilon={epsilon}", f"algo.{STEP_SIZES[algo]}={step}", f"algo.clip={clip}"
        run_command([*words(algo), *values, f"hydra.run.dir={folder}/{number}"])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    scale = n_runs() / SLICE
    return (time.perf_counter() - since) * scale, (used.ru_utime + used.ru_stime) * scale


def run_command(overrides: list[str]) -> None:
    """`fedpriv overrides`, as a shell starts it."""
    command = [sys.executable, "-m", "fedpriv", *overrides]
    subprocess.run(command, check=True, capture_output=True)


def n_runs() -> int:
    """Number of runs of a sweep."""
    return math.prod(len(values.split(",")) for values in (EPSILONS, STEPS, CLIPS))


def difference(here: Path, there: Path) -> float:
    """The largest difference between numbers at the same place in the tables of two sweeps."""
    largest = 0.0
    for run in range(n_runs()):
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
