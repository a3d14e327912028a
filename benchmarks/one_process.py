"""A round whose parties all run in one process, with what a simulation saves and without it.

`shared` is the default. In `one by one` each silo makes its own message, as the protocol says, and
nothing is prepared for several of them. Both give the same bits. They take alternating turns in one
process on one thread, from states of their own. Times are processor seconds; the ratio is that of
the last column to `shared`. Generated records: devices with one owner and eight records each.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio
from benchmarks._rounds import timed
from benchmarks.scaling import silos

TURNS = 3


@dataclass(frozen=True)
class Case:
    """A run.

    silos: number of silos.
    words: overrides.
    goal: most seconds of a round; 0: none is set.
    """

    silos: int
    words: tuple[str, ...]
    goal: float = 0.0


CASES = [
    Case(1_000, ("aggregation=plain",)),
    Case(10_000, ("aggregation=plain",), goal=1.0),
    Case(30, ("aggregation=masked",)),
    Case(30, ("aggregation=secagg",), goal=0.28),
]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(f"{'silos':>7} {'':>20} {'shared':>9} {'one by one':>11}")
    for case in CASES:
        shared, alone = in_fresh_process(measure, case)
        medians = [float(np.median(seconds)) for seconds in (shared, alone)]
        met = "met" if medians[0] <= case.goal else "MISSED"
        goal = f"at most {case.goal:g}: {met}" if case.goal else ""
        print(
            f"{case.silos:>7} {case.words[0]:>20} {medians[0]:7.3f} s {medians[1]:9.3f} s  "
            f"{ratio(shared, alone)}  {goal}",
            flush=True,
        )


@contextmanager
def one_by_one() -> Iterator[None]:
    """Context in which each silo makes its own message."""
    from fedpriv.aggregation.weighted import NoisedSum

    alone = staticmethod(lambda works: [work.run() for work in works])
    with patch.object(NoisedSum, "run_batch", alone):
        yield


def measure(case: Case) -> tuple[list[float], list[float]]:
    """Processor seconds of the rounds: shared, and one by one."""
    import torch

    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    words = ("algo=uldp_avg", "data=artificial", *silos(case.silos), *case.words)
    seconds: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        runs = [stack.enter_context(prepare(experiment(*words))) for _ in range(2)]
        states = [run.state for run in runs]
        for turn in range(TURNS + 1):
            for place, run in enumerate(runs):
                with ExitStack() as turns:
                    if place:
                        turns.enter_context(one_by_one())
                    states[place], spent = timed(run, states[place], turn + 1)
                if turn:  # the first turn warms up
                    seconds[place].append(spent)
    if len({state.params.tobytes() for state in states}) > 1:
        raise RuntimeError("the runs have different bits")
    return seconds
