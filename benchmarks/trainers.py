"""Local training compiled from C++ beside the stacked trainer of torch: the same users, records and network.

Both take turns in one process on one thread, and processor seconds are counted, so that a busy machine slows both.
Records are those of `local_training`.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from benchmarks._apart import apart
from benchmarks.local_training import load

TRAINERS = "compiled", "stacked"


@dataclass(frozen=True)
class Case:
    """silos: how many of the five train."""

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
    """Run every case in a process of its own, and print a table."""
    print("zipf users (0.5) in five silos (2.0), batches of 64, one thread; medians of processor seconds a round")
    print(f"{'data':>10} {'users':>6} {'pairs':>6} {'records':>7} {'epochs':>6} {'compiled':>9} {'stacked':>8} "
          f"{'ratio':>6} {'least':>6} {'most':>6}")  # fmt: skip
    for case in CASES:
        r = apart(measure, case)
        print(f"{case.data:>10} {case.users:>6} {r['pairs']:>6} {r['records']:>7} {case.epochs:>6} "
              f"{r['compiled']:>9.3f} {r['stacked']:>8.3f} {r['ratio']:>6.2f} {r['least']:>6.2f} {r['most']:>6.2f}",
              flush=True)  # fmt: skip


def measure(case: Case) -> dict[str, float]:
    """Medians of both, and the ratios of single turns."""
    import torch

    from fedpriv.data.allocate import Zipf
    from fedpriv.data.silo import split_by_silo
    from fedpriv.models.cnn import MnistCnn
    from fedpriv.models.mlp import Mlp
    from fedpriv.streams import Streams

    torch.set_num_threads(1)
    data, records = load(case.data)
    silos = split_by_silo(records, Zipf(case.users, 5).allocate(records, data, Streams(0)), "cpu")[: case.silos]
    model = Mlp([30] * 5, True, 0.5) if case.data == "creditcard" else MnistCnn([10, 20], 50, 0.5)
    network = model.build(data.shape, data.outputs)
    times: dict[str, list[float]] = {name: [] for name in TRAINERS}
    for name in TRAINERS:
        everybody(name, network, silos, 1)  # compiles, and meets every shape
    for _ in range(case.turns):
        for name, taken in times.items():
            since = time.process_time()
            everybody(name, network, silos, case.epochs)
            taken.append(time.process_time() - since)
    ratios = [stacked / compiled for compiled, stacked in zip(*times.values())]
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return medians | {
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "pairs": sum(len(silo.users) for silo in silos),
        "records": sum(len(silo.x) for silo in silos),
    }


def everybody(name: str, network, silos, epochs: int) -> None:
    """A round of local training of all users."""
    from fedpriv.streams import Streams
    from fedpriv.tasks import Classification
    from fedpriv.training.description import Execution, Recipe, Training
    from fedpriv.training.users import train_users
    from fedpriv.training.vectors import flatten

    training = Training(Recipe(epochs, 64, 0.01), flatten(network).double().numpy())
    common = {"model": network, "task": Classification(), "streams": Streams(0), "round": 0}
    for number, silo in enumerate(silos):
        for _ in train_users(training, data=silo, party=f"silo-{number}", execution=Execution(name), **common):
            pass
