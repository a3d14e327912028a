"""How a round grows with users, silos and parameters, as a run does it: all parties in one process,
on made-up records.

Users come in three silos, ten passes over each user's records; silos are devices with one owner and
eight records each, of a small network and of one with two wide layers; parameters are those of such
networks, in three silos. Processor seconds of one thread: to prepare (data, parties, set-up) and of
a round, the median of three. The memory is that of the whole process at its peak.
"""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import dataclass

from benchmarks._apart import apart
from benchmarks._rounds import timed

ROUNDS = 3
USERS = (10_000, 100_000, 1_000_000)
SILOS = (100, 1_000, 10_000)
WIDTHS = (310, 994, 3_158)
GOAL_MB = 4_000
"""Of the run with the most users."""


@dataclass(frozen=True)
class Case:
    """What grows, how much of it there is, and the words of the run."""

    what: str
    words: tuple[str, ...]


def cases() -> list[Case]:
    users = [
        Case(f"{n:,} users", (f"preset.n_users={n}", f"data.size={n * 5 // 4}")) for n in USERS
    ]
    owners = "allocator=equal", "allocator.local_test=0"
    silos = [
        Case(f"{n:,} silos", (f"preset.n_silos={n}", f"data.size={10 * n}", *owners)) for n in SILOS
    ]
    trained = [
        Case(
            f"{silo.what}, {parameters(WIDTHS[0]):,} parameters, {name}",
            (*silo.words, *wide(WIDTHS[0]), f"trainer={name}"),
        )
        for silo in silos[:2]
        for name in ("compiled", "batched")
    ]
    summed = [
        Case(
            f"{parameters(width):,} parameters, {name}",
            (*wide(width), "data.size=200", f"aggregation={name}"),
        )
        for width in WIDTHS
        for name in ("plain", "masked")
    ]
    return [*users, *silos, *trained, *summed]


def wide(width: int) -> tuple[str, str]:
    """The words of the network with two layers so wide."""
    return f"model.hidden=[{width},{width}]", "preset.local_epochs=1"


def parameters(width: int) -> int:
    """Of the network with two layers so wide, 4 features and 2 classes."""
    return (4 + 1) * width + (width + 1) * width + (width + 1) * 2


def main() -> None:
    """Run every case in a process of its own, and print a table."""
    print(f"{'':>42} {'prepare':>9} {'round':>9} {'MB':>7}")
    for case in cases():
        set_up, round, mb = apart(measure, case.words)
        print(f"{case.what:>42} {set_up:7.2f} s {round:7.2f} s {mb:7.0f}", flush=True)
    print(f"goal: the most users in less than {GOAL_MB} MB")


def measure(words: tuple[str, ...]) -> tuple[float, float, float]:
    """Processor seconds before the first round and of a round, and MB at the peak."""
    import torch

    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    since = time.process_time()
    seconds = []
    with prepare(experiment("algo=uldp_avg", "data=artificial", *words)) as prepared:
        state = prepared.state
        set_up = time.process_time() - since
        for number in range(1, ROUNDS + 1):
            state, took = timed(prepared, state, number)
            seconds.append(took)
    return (
        set_up,
        statistics.median(seconds),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
