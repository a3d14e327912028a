"""Local SGD with one record a step: processor microseconds of a step of one training.

The network is that of MNIST odd/even, on one core. `one by one` computes one clipped gradient and
one step's noise at a time, as trainings with larger batches do. `alone` is one training in the
stacked layers. The others are many settings of one seed, which share their noise, or many seeds.
All take alternating turns in one process; the ratio is that of `one by one` to each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, ratio

TURNS = 5
STEPS = 200
CLIP = 5.0
LR = 0.01
NOISE = 2.0
WIDE = 38
GOAL = 5.0


def main() -> None:
    """Print a line for each program."""
    times = in_fresh_process(measure)
    for name, spent in times.items():
        step = 1e6 * float(np.median(spent))
        print(f"{name:>14} {step:8.1f} us a step  {ratio(times['one by one'], spent)}  goal {GOAL}")


def measure() -> dict[str, list[float]]:
    """Processor seconds a step, by turn."""
    import torch
    from fedpriv.training.record_steps import RecordSteps
    from fedpriv.training.trainers.compile_layers import compile_layers

    from fedpriv.models.mlp import Mlp
    from fedpriv.models.tasks import Classification
    from fedpriv.training.clipped import clipped_gradients
    from fedpriv.training.contributions import ContributionStats
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
        "alone": (1, lambda: training(0).run()),
        f"{WIDE} settings": (
            WIDE,
            lambda: RecordSteps.run_batch([training(0) for _ in range(WIDE)]),
        ),
        f"{WIDE} seeds": (
            WIDE,
            lambda: RecordSteps.run_batch([training(seed) for seed in range(WIDE)]),
        ),
    }
    programs = {name: case for name, (_, case) in cases.items()}
    times = alternating_turns(programs, TURNS)
    return {name: [t / STEPS / cases[name][0] for t in spent] for name, spent in times.items()}


if __name__ == "__main__":
    main()
