"""A round of many silos in one process: their training in one stack, beside one silo after another.

Rounds of the command's own configurations, all parties and messages included, without a C++
compiler's help. Both take turns in one process on one thread, from the same state; processor
seconds are counted, and medians of turns compared. Records: see `benchmarks.local_training`; of
Local SGD and the others, 25 equal silos.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np

from benchmarks._apart import apart
from benchmarks._rounds import in_memory, timed
from benchmarks._turns import compared
from benchmarks.local_training import load

TURNS = 5


@dataclass(frozen=True)
class Case:
    """words: of the command line. silos: each of one user."""

    data: str
    silos: int
    words: tuple[str, ...]


STACKED = "algo=uldp_avg", "preset.local_epochs=1", "trainer=batched"
RECORD = "model=odd_even_mlp", "algo.calibration=given", "algo.noise_multiplier=1"
CASES = [
    Case("creditcard", 100, STACKED),
    Case("creditcard", 1000, STACKED),
    Case("mnist", 1000, STACKED),
    Case("mnist", 5000, STACKED),
    Case("creditcard", 25, ("algo=local_sgd", "algo.local_steps=100", *RECORD)),
    *(
        Case("creditcard", 25, (f"algo={name}", *RECORD))
        for name in ("minibatch_sgd", "prox_svrg", "spider")
    ),
]


def main() -> None:
    columns = "data", "silos", "method", "together", "apart", "ratio", "least", "most"
    print("{:>10} {:>6} {:>14} {:>9} {:>8} {:>6} {:>6} {:>6}".format(*columns))
    for case in CASES:
        own, other, ratio, least, most = apart(measure, case)
        method = case.words[0].partition("=")[2]
        print(
            f"{case.data:>10} {case.silos:>6} {method:>14} {own:>9.3f} {other:>8.3f} "
            f"{ratio:>6.2f} {least:>6.2f} "
            f"{most:>6.2f}",
            flush=True,
        )


def measure(case: Case) -> tuple[float, float, float, float, float]:
    import torch

    from fedpriv.data.allocate import ByUser
    from fedpriv.util.work import DeferredWork

    torch.set_num_threads(1)
    batch_key, records = load(case.data)
    user = np.random.default_rng(0).permutation(np.arange(len(records)) % case.silos)
    words = (
        f"data={case.data}",
        f"preset.n_users={case.silos}",
        f"preset.n_silos={case.silos}",
        *case.words,
    )
    whole = ByUser(case.silos, case.silos, local_test=0.0)
    turns = []
    with in_memory(batch_key, replace(records, user=user), *words, allocator=whole) as prepared:
        for _ in range(TURNS + 1):
            _, run_batch = timed(prepared, prepared.state, 1)
            with patch.object(DeferredWork, "waits", False):
                _, one_by_one = timed(prepared, prepared.state, 1)
            turns.append((run_batch, one_by_one))
    return compared(turns[1:])  # the first meets every shape
