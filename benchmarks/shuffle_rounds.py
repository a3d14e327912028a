"""Whole rounds in the shuffle model, beside the same rounds summed in the clear.

A round has gradients, bounds, levels, noise bits, counts and the step. The case is MNIST odd / even
with 25 silos and the network 50-64-2 with 3,394 parameters, on generated features. Each round takes
another 1,238 records of each silo, since the methods pass over the data once. Both aggregations
take alternating turns in one process. Times are processor seconds of one core for all parties; the
ratio is that of `shuffle` to `plain`. The goal is a round within 5 seconds and 2 GiB.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio
from benchmarks._rounds import timed
from fedpriv.data.allocate import Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

SILOS = 25
RECORDS = 1238
FEATURES = 50
ROUNDS = 3
CASES = (("algo=prox_sgd",), ("algo=spider", "algo.phase=2"))


@dataclass(frozen=True)
class Drawn(DataSet):
    """Normal features; a silo's own direction decides the labels."""

    shape = (FEATURES,)
    outputs = 2
    natural_silos = SILOS
    natural_users = True

    @property
    def task(self) -> Task:
        return Classification()

    def load(self, streams: Streams) -> Corpus:
        rng = np.random.default_rng(0)
        silo = np.repeat(np.arange(SILOS), ROUNDS * RECORDS)
        x = rng.standard_normal((len(silo), FEATURES), dtype=np.float32)
        y = ((x * rng.standard_normal((SILOS, FEATURES))[silo]).sum(1) > 0).astype(np.int64)
        return Corpus(Records(x, y, silo, np.arange(len(silo))), Records(x[:100], y[:100]))


def main() -> None:
    """Print a line for each method."""
    for words in CASES:
        turns, mib, epsilon = in_fresh_process(measure, words)
        shuffled, plain = zip(*turns)
        each = ", ".join(f"{seconds:.2f}" for seconds in shuffled)
        print(
            f"{words[0]:>13}  rounds of {each} s, peak {mib:.0f} MiB, epsilon {epsilon:.3g}  "
            f"{ratio(plain, shuffled)}",
            flush=True,
        )


def measure(words: tuple[str, ...]) -> tuple[list[tuple[float, float]], float, float]:
    """Processor seconds of each round of both aggregations, MiB at the peak, and the epsilon
    certified against the server in the shuffle model."""
    import torch

    from fedpriv.models.mlp import Mlp
    from fedpriv.runs.epsilon_forecast import EpsilonForecast
    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    common = f"algo.batch_size={RECORDS}", f"rounds={ROUNDS}", "algo.epsilon=3", "algo.clip=1"
    exps = [
        replace(
            experiment(*words, *common, f"aggregation={aggregation}"),
            data=Drawn(),
            allocator=Natural(SILOS * ROUNDS * RECORDS, SILOS),
            model=Mlp([64], False, 0.0),
        )
        for aggregation in ("shuffle", "plain")
    ]
    forecast = EpsilonForecast.of(exps[0])
    epsilon = forecast.spent(exps[0].accountant, forecast.noise, ROUNDS)
    turns = []
    with prepare(exps[0]) as shuffled, prepare(exps[1]) as plain:
        for number in range(1, ROUNDS + 1):
            seconds = []
            for run in (shuffled, plain):
                run.state, taken = timed(run, run.state, number)
                seconds.append(taken)
            turns.append((seconds[0], seconds[1]))
    return turns, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, epsilon
