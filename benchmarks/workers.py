"""Compiled local training on one thread and on two: the same users, records and network, and the
same bits.

Both take turns in one process; seconds are of the clock, so the machine has to have two processors
to itself. Records are those of `local_training`.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass

from benchmarks._apart import apart
from benchmarks._turns import compared
from benchmarks.local_training import federation, trained

TURNS = 7


@dataclass(frozen=True)
class Case:
    data: str
    users: int
    epochs: int


CASES = [Case("creditcard", users, 30) for users in (100, 1000, 10_000)] + [Case("mnist", 1000, 1)]


def main() -> None:
    """Run every case in a process of its own, and print a table."""
    print(
        f"five silos, zipf, batches of 64, {os.cpu_count()} processors; medians of seconds a round"
    )
    print(f"{'data':>10} {'users':>6} {'one':>7} {'two':>7} {'ratio':>6} {'least':>6} {'most':>6}")
    for case in CASES:
        r = apart(measure, case)
        print(
            f"{case.data:>10} {case.users:>6} {r['one']:>7.3f} {r['two']:>7.3f} "
            f"{r['ratio']:>6.2f} "
            f"{r['least']:>6.2f} {r['most']:>6.2f}",
            flush=True,
        )


def measure(case: Case) -> dict[str, float]:
    """Medians of both, and the ratios of single turns. Raises where the bits differ."""
    silos, network = federation(case.data, case.users)
    one, two = (
        _digests(trained(network, silos, 1, "compiled", workers)) for workers in (1, 2)
    )  # meets every shape
    assert one == two, "bits depend on the number of threads"
    times = [
        (_seconds(network, silos, case.epochs, 2), _seconds(network, silos, case.epochs, 1))
        for _ in range(TURNS)
    ]
    return dict(zip(("two", "one", "ratio", "least", "most"), compared(times)))


def _seconds(network, silos, epochs: int, workers: int) -> float:
    """Blocks are let go at once, as a round does: to keep them would measure how fast memory is
    had."""
    since = time.perf_counter()
    for _ in trained(network, silos, epochs, "compiled", workers):
        pass
    return time.perf_counter() - since


def _digests(blocks) -> list[bytes]:
    return [hashlib.blake2b(block.deltas.numpy().tobytes()).digest() for block in blocks]
