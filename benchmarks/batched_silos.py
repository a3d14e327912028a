"""A round of many silos in one process: silos trained in one batch, beside one after the other.

Rounds of the command's own configurations with all parties and messages, and nothing compiled. Both
take alternating turns in one process on one thread, from the same state. Times are processor
seconds. Records: see `benchmarks.local_training`. Local SGD and the methods after it have 25 equal
silos.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared
from benchmarks._rounds import in_memory, timed
from benchmarks._torch_sums import without_compiled_sums
from benchmarks.local_training import load

TURNS = 5


@dataclass(frozen=True)
class Case:
    """A configuration.

    data: name of the data set.
    silos: number of silos, each with one user.
    words: overrides of the command.
    """

    data: str
    silos: int
    words: tuple[str, ...]


BATCHED = "algo=uldp_avg", "preset.local_epochs=1", "trainer=batched"
RECORD = "model=odd_even_mlp", "algo.calibration=given", "algo.noise_multiplier=1"
CASES = [
    Case("creditcard", 100, BATCHED),
    Case("creditcard", 1000, BATCHED),
    Case("mnist", 1000, BATCHED),
    Case("mnist", 5000, BATCHED),
    Case("creditcard", 25, ("algo=local_sgd", "algo.local_steps=100", *RECORD)),
    *(
        Case("creditcard", 25, (f"algo={name}", *RECORD))
        for name in ("minibatch_sgd", "prox_svrg", "spider")
    ),
]


def main() -> None:
    """Run every case in its own process, and print a table."""
    columns = "data", "silos", "method", "batched", "in turn", "ratio", "least", "most"
    print("{:>10} {:>6} {:>14} {:>9} {:>8} {:>6} {:>6} {:>6}".format(*columns))
    for case in CASES:
        own, other, ratio, least, most = in_fresh_process(measure, case)
        method = case.words[0].partition("=")[2]
        print(
            f"{case.data:>10} {case.silos:>6} {method:>14} {own:>9.3f} {other:>8.3f} "
            f"{ratio:>6.2f} {least:>6.2f} "
            f"{most:>6.2f}",
            flush=True,
        )


def in_turn(job):
    """As `LocalJob.batched`, without a batch."""
    return job
    yield


def measure(case: Case) -> tuple[float, float, float, float, float]:
    import torch

    from fedpriv.data.allocate import ByUser
    from fedpriv.rounds.local_job import LocalJob

    torch.set_num_threads(1)
    data_set, records = load(case.data)
    user = np.random.default_rng(0).permutation(np.arange(len(records)) % case.silos)
    words = (
        f"data={case.data}",
        f"preset.n_users={case.silos}",
        f"preset.n_silos={case.silos}",
        *case.words,
    )
    whole = ByUser(case.silos, case.silos, local_test=0.0)
    turns = []
    with (
        without_compiled_sums(),
        in_memory(data_set, replace(records, user=user), *words, allocator=whole) as prepared,
    ):
        for turn in range(1, 2 * TURNS + 3, 2):  # a silo answers the same round from memory
            _, batched = timed(prepared, prepared.state, turn)
            with patch.object(LocalJob, "batched", in_turn):
                _, one_by_one = timed(prepared, prepared.state, turn + 1)
            turns.append((batched, one_by_one))
    return compared(turns[1:])  # the first turn warms up
