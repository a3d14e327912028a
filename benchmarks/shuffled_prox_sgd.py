"""A round of prox-SGD in the shuffle model, as a run does it: gradients, bounds, levels, noise
bits, counts, the step.

The case is MNIST odd / even with 25 silos of 1,238 records and the network 50-64-2 with 3,394
parameters, all records in one batch, on drawn features. Processor seconds and memory of one core
for all parties together; the bar is a round within 5 seconds and 2 GiB.
"""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._apart import apart
from fedpriv.data.allocate import Natural
from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.models.tasks import Classification
from fedpriv.util.streams import Streams

SILOS = 25
RECORDS = 1238
FEATURES = 50
ROUNDS = 3


@dataclass(frozen=True)
class Drawn(DataSet):
    """Normal features, and labels that a silo's own direction decides."""

    shape = (FEATURES,)
    outputs = 2
    task = Classification()
    natural_silos = SILOS
    natural_users = True

    def load(self, streams: Streams) -> Corpus:
        rng = np.random.default_rng(0)
        silo = np.repeat(np.arange(SILOS), RECORDS)
        x = rng.standard_normal((len(silo), FEATURES), dtype=np.float32)
        y = ((x * rng.standard_normal((SILOS, FEATURES))[silo]).sum(1) > 0).astype(np.int64)
        return Corpus(Records(x, y, silo, np.arange(len(silo))), Records(x[:100], y[:100]))


def main() -> None:
    for words in (("algo=prox_sgd",), ("algo=spider", "algo.phase=2")):
        seconds, mib, epsilon = apart(measure, words)
        each = ", ".join(f"{one:.2f}" for one in seconds)
        print(f"{words[0]:>13}  rounds of {each} s, {mib:.0f} MiB at most, epsilon {epsilon:.3g}")


def measure(words: tuple[str, ...]) -> tuple[list[float], float, float]:
    """Processor seconds of each round, MiB at the peak, and the epsilon that is certified against
    the server."""
    import torch

    from fedpriv.models.mlp import Mlp
    from fedpriv.runs.epsilon_forecast import EpsilonForecast
    from fedpriv.runtime import prepare
    from fedpriv.testing import experiment

    torch.set_num_threads(1)
    size = f"algo.batch_size={RECORDS}"
    rounds = 1 if words == ("algo=prox_sgd",) else ROUNDS
    exp = experiment(
        *words, size, f"rounds={rounds}", "algo.epsilon=3", "algo.clip=1", "aggregation=shuffle"
    )
    exp = replace(
        exp, data=Drawn(), allocator=Natural(SILOS * RECORDS, SILOS), model=Mlp([64], False, 0.0)
    )
    planned = EpsilonForecast.of(exp)
    epsilon = planned.spent(exp.accountant, planned.noise, rounds)
    seconds = []
    with prepare(exp) as prepared:
        assert len(prepared.state.params) == 3394
        for number in range(1, rounds + 1):
            since = time.process_time()
            result = prepared.run_round(prepared.queries(number), prepared.state)
            seconds.append(time.process_time() - since)
            assert result.aborted is None
            prepared.state = result.state
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, epsilon
