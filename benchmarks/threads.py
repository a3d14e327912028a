"""Compiled local training on two threads, beside one thread.

Users, records and network are the same, and so are the resulting bits. Both take alternating turns
in one process. Times are seconds of the clock, so the machine needs two idle processors. Records
are those of `local_training`.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared
from benchmarks.local_training import federation, trained

TURNS = 7


@dataclass(frozen=True)
class Case:
    """A configuration.

    data: name of the data set.
    users: number of users.
    epochs: local epochs.
    """

    data: str
    users: int
    epochs: int


CASES = [Case("creditcard", users, 30) for users in (100, 1000, 10_000)] + [Case("mnist", 1000, 1)]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        f"five silos, zipf, batches of 64, {os.cpu_count()} processors; medians of seconds a round"
    )
    print(f"{'data':>10} {'users':>6} {'one':>7} {'two':>7} {'ratio':>6} {'least':>6} {'most':>6}")
    for case in CASES:
        r = in_fresh_process(measure, case)
        print(
            f"{case.data:>10} {case.users:>6} {r['one']:>7.3f} {r['two']:>7.3f} "
            f"{r['ratio']:>6.2f} "
            f"{r['least']:>6.2f} {r['most']:>6.2f}",
            flush=True,
        )


def measure(case: Case) -> dict[str, float]:
    """Medians of both, and ratios of single turns. Raises AssertionError if the bits differ."""
    silos, network = federation(case.data, case.users)
    one, two = (
        _digests(trained(network, silos, 1, "compiled", workers)) for workers in (1, 2)
    )  # warm-up
    assert one == two, "bits depend on the number of threads"
    times = [
        (_seconds(network, silos, case.epochs, 2), _seconds(network, silos, case.epochs, 1))
        for _ in range(TURNS)
    ]
    return dict(zip(("two", "one", "ratio", "least", "most"), compared(times)))


def _seconds(network, silos, epochs: int, workers: int) -> float:
    """Seconds of a training. Blocks are freed at once, as in a round; keeping them would measure
    memory allocation."""
    since = time.perf_counter()
    for _ in trained(network, silos, epochs, "compiled", workers):
        pass
    return time.perf_counter() - since


def _digests(blocks) -> list[bytes]:
    return [hashlib.blake2b(block.vectors.numpy().tobytes()).digest() for block in blocks]
