"""Local training compiled from C++, beside stacks of users by torch.

Users, records and network are the same. Both take alternating turns in one process on one thread,
so that a busy machine slows both. Times are processor seconds. Records are those of
`local_training`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, compared
from benchmarks.local_training import federation, trained

TRAINERS = "compiled", "batched"


@dataclass(frozen=True)
class Case:
    """A configuration.

    data: name of the data set.
    users: number of users.
    epochs: local epochs.
    silos: number of silos, of five, that train.
    turns: number of turns.
    """

    data: str
    users: int
    epochs: int
    silos: int
    turns: int


CASES = [
    *(Case("creditcard", users, 30, 5, 5) for users in (100, 1000, 10_000)),
    *(Case("mnist", users, 1, 1, 3) for users in (100, 1000, 10_000)),
]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        "zipf users (0.5) in five silos (2.0), batches of 64, one thread; medians of processor "
        "seconds a round"
    )
    print(
        f"{'data':>10} {'users':>6} {'pairs':>6} {'records':>7} {'epochs':>6} {'compiled':>9} "
        f"{'batched':>8} "
        f"{'ratio':>6} {'least':>6} {'most':>6}"
    )
    for case in CASES:
        r = in_fresh_process(measure, case)
        print(
            f"{case.data:>10} {case.users:>6} {r['pairs']:>6} {r['records']:>7} {case.epochs:>6} "
            f"{r['compiled']:>9.3f} {r['batched']:>8.3f} {r['ratio']:>6.2f} {r['least']:>6.2f} "
            f"{r['most']:>6.2f}",
            flush=True,
        )


def measure(case: Case) -> dict[str, float]:
    """Medians of both, and the ratios of single turns."""
    silos, network = federation(case.data, case.users)
    silos = silos[: case.silos]
    for name in TRAINERS:
        deque(trained(network, silos, 1, name), maxlen=0)  # warm-up: compiles, sees every shape
    times = alternating_turns(
        {
            name: lambda name=name: deque(trained(network, silos, case.epochs, name), maxlen=0)
            for name in TRAINERS
        },
        case.turns,
        warm_up=0,
    )
    return dict(zip((*TRAINERS, "ratio", "least", "most"), compared([*zip(*times.values())]))) | {
        "pairs": sum(len(silo.users) for silo in silos),
        "records": sum(len(silo.x) for silo in silos),
    }
