"""Local SGD of one record a step: microseconds of the processor for a step of one training, on one
core.

The network is that of MNIST odd/even. `one by one` takes a clipped gradient and a step's noise at a
time, as trainings of larger batches do; `alone` is one training in the stacked layers; the others
are as many settings of one seed, which share their noise, or as many seeds. They take turns in one
process; ratios are medians over turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks._apart import apart

TURNS = 5
STEPS = 200
CLIP = 5.0
LR = 0.01
NOISE = 2.0
WIDE = 38
GOAL = 5.0


def main() -> None:
    times = apart(measure)
    slow = np.array(times["one by one"])
    for name, spent in times.items():
        ratio = np.median(slow / np.array(spent))
        print(
            f"{name:>14} {1e6 * float(np.median(spent)):8.1f} us a step  ratio {ratio:6.1f}  "
            f"goal {GOAL}",
            flush=True,
        )


def measure() -> dict[str, list[float]]:
    """Processor seconds a step, by turn."""
    import torch

    from fedpriv.models.mlp import Mlp
    from fedpriv.models.tasks import Classification
    from fedpriv.training.clipped import clipped_gradients
    from fedpriv.training.contribution_stats import ContributionStats
    from fedpriv.training.record_steps import RecordSteps
    from fedpriv.training.trainers.compile_layers import compile_layers
    from fedpriv.training.vectors import flatten
    from fedpriv.util.streams import Streams

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = Mlp([64], False, 0.0).build((50,), 2)
    task = Classification()
    x = torch.randn(1238, 50)
    y = torch.arange(1238) % 2
    rows = np.random.default_rng(0).permutation(1238)[:STEPS]
    start = flatten(network).double().numpy()
    links = compile_layers(network, (50,))
    gradients = clipped_gradients(network, task, CLIP, shape=(50,))
    assert links is not None

    def training(seed: int) -> RecordSteps:
        noise = Streams(seed).generator("noise", 1, "silo0")
        return RecordSteps(
            links, task, CLIP, LR, start, x, y, rows, noise, NOISE, ContributionStats()
        )

    def one_by_one() -> np.ndarray:
        current = start.copy()
        noise = Streams(0).generator("noise", 1, "silo0")
        for row in rows:
            index = torch.tensor([row])
            theta = torch.from_numpy(current).float()
            total = gradients.sum(theta, x[index], y[index], stats=ContributionStats()).numpy()
            current -= LR * total
            current -= LR * NOISE * noise.standard_normal(len(current))
        return current

    cases: dict[str, tuple[int, Callable[[], object]]] = {
        "one by one": (1, one_by_one),
        "alone": (1, lambda: training(0).alone()),
        f"{WIDE} settings": (
            WIDE,
            lambda: RecordSteps.together([training(0) for _ in range(WIDE)]),
        ),
        f"{WIDE} seeds": (
            WIDE,
            lambda: RecordSteps.together([training(seed) for seed in range(WIDE)]),
        ),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(TURNS):
        for name, (width, case) in cases.items():
            since = time.process_time()
            case()
            times[name].append((time.process_time() - since) / STEPS / width)
    return times


if __name__ == "__main__":
    main()
