"""Time and memory of a round as users, silos and parameters grow.

All parties run in one process, on generated records. Users: three silos, ten passes over each
user's records. Silos: devices with one owner and eight records each, of a small network and of one
with two wide layers. Parameters: networks of two wide layers, three silos. Every case but the one
with most parameters takes alternating turns with another run: a tenth as many users or silos, the
batched trainer, or the sum in the clear. The ratio is that of the case's round to the other run's,
in processor seconds of one thread. `prepare` covers data, parties and set-up. Memory is the peak of
the whole process.
"""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio
from benchmarks._rounds import timed

ROUNDS = 3
USERS = (10_000, 100_000, 1_000_000)
SILOS = (100, 1_000, 10_000)
WIDTHS = (310, 994, 3_158)
WIDEST = 9_997
"""The width that runs alone, since two runs would not fit in memory."""
GOAL_MB = 4_000
"""Most memory of the run with the most users."""
GOAL_MB_WIDEST = 14_000
"""Most memory of the run with the most parameters."""


@dataclass(frozen=True)
class Case:
    """A run and the one that it is compared with.

    what: what grows, and how much of it there is.
    words: overrides of the run.
    beside: overrides of the other run; None: the run is alone.
    """

    what: str
    words: tuple[str, ...]
    beside: tuple[str, ...] | None


def users(n: int) -> tuple[str, ...]:
    """Overrides for n users."""
    return f"preset.n_users={n}", f"data.size={n * 5 // 4}"


def silos(n: int) -> tuple[str, ...]:
    """Overrides for n silos."""
    size = f"preset.n_silos={n}", f"data.size={10 * n}"
    return *size, "allocator=equal", "allocator.local_test=0"


def cases() -> list[Case]:
    """All cases."""
    found = [Case(f"{n:,} users", users(n), users(n // 10)) for n in USERS]
    found += [Case(f"{n:,} silos", silos(n), silos(n // 10)) for n in SILOS]
    for n in SILOS[:2]:
        words = *silos(n), *wide(WIDTHS[0])
        about = f"{n:,} silos, {parameters(WIDTHS[0]):,} parameters, compiled"
        found.append(Case(about, (*words, "trainer=compiled"), (*words, "trainer=batched")))
    for width in WIDTHS:
        words = *wide(width), "data.size=200"
        about = f"{parameters(width):,} parameters, masked"
        found.append(Case(about, (*words, "aggregation=masked"), (*words, "aggregation=plain")))
    words = *wide(WIDEST), "data.size=200", "aggregation=masked"
    found.append(Case(f"{parameters(WIDEST):,} parameters, masked", words, None))
    return found


def wide(width: int) -> tuple[str, str]:
    """Overrides for a network with two layers of this width."""
    return f"model.hidden=[{width},{width}]", "preset.local_epochs=1"


def parameters(width: int) -> int:
    """Parameters of a network with two layers of this width, 4 features and 2 classes."""
    return (4 + 1) * width + (width + 1) * width + (width + 1) * 2


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(f"{'':>42} {'prepare':>9} {'round':>9} {'MB':>7}")
    for case in cases():
        prepared, own, other, mb = in_fresh_process(measure, case)
        beside = ratio(other, own) if other else "alone"
        seconds = float(np.median(own))
        print(f"{case.what:>42} {prepared:7.2f} s {seconds:7.2f} s {mb:7.0f}  {beside}", flush=True)
    print(f"goals: most users in less than {GOAL_MB} MB, most parameters in {GOAL_MB_WIDEST} MB")


def measure(case: Case) -> tuple[float, list[float], list[float], float]:
    """Processor seconds before the first round, and of the rounds of both runs, none where the
    case runs alone; MB at the peak."""
    import torch

    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    common = "algo=uldp_avg", "data=artificial"
    since = time.process_time()
    with ExitStack() as opened:
        runs = [opened.enter_context(prepare(experiment(*common, *case.words)))]
        prepared = time.process_time() - since
        if case.beside is not None:
            runs.append(opened.enter_context(prepare(experiment(*common, *case.beside))))
        states = [run.state for run in runs]
        seconds: list[list[float]] = [[], []]
        for number in range(1, ROUNDS + 1):
            for place, run in enumerate(runs):
                states[place], spent = timed(run, states[place], number)
                seconds[place].append(spent)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return prepared, *seconds, peak
