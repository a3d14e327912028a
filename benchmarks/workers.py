"""Compiled local training on one thread and on two: the same users, records and network, and the same bits.

Both take turns in one process; seconds are of the clock, so the machine has to have two processors to itself. Records
are those of `local_training`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np

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
    print(f"five silos, zipf, batches of 64, {os.cpu_count()} processors; medians of seconds a round")
    print(f"{'data':>10} {'users':>6} {'one':>7} {'two':>7} {'ratio':>6} {'least':>6} {'most':>6}")
    for case in CASES:
        r = apart(measure, case)
        print(f"{case.data:>10} {case.users:>6} {r['one']:>7.3f} {r['two']:>7.3f} {r['ratio']:>6.2f} "
              f"{r['least']:>6.2f} {r['most']:>6.2f}", flush=True)  # fmt: skip


def measure(case: Case) -> dict[str, float]:
    """Medians of both, and the ratios of single turns. Raises where the bits differ."""
    silos, network = federation(case.data, case.users)
    for _ in trained(network, silos, 1, "compiled"):  # compiles, and meets every shape
        pass
    times: list[tuple[float, float]] = []
    for _ in range(TURNS):
        taken, sums = [], []
        for workers in (1, 2):
            since = time.perf_counter()
            blocks = trained(network, silos, case.epochs, "compiled", workers)
            sums.append(np.concatenate([block.deltas.numpy() for block in blocks]))
            taken.append(time.perf_counter() - since)
        assert np.array_equal(*sums), "bits depend on the number of threads"
        times.append((taken[1], taken[0]))
    return dict(zip(("two", "one", "ratio", "least", "most"), compared(times)))
