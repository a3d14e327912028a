"""Local training of every user in every silo, beside the loop that a researcher would write.

Both take alternating turns on one core in one process, so that a busy machine slows both. The loop
trains a fair slice of the (user, silo) pairs, every m-th by number of records. Its time is scaled
by the batch steps that it leaves out. Records are those of creditcard and MNIST if FEDPRIV_DATA or
../shared/data has them (creditcard's subset is repeated with jitter up to the paper's 24,584 rows).
Otherwise they are random numbers of the same shape: times do not depend on the values.
"""

from __future__ import annotations

import copy
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared

TURNS = 3


@dataclass(frozen=True)
class Case:
    """A configuration.

    data: name of the data set.
    users: number of users.
    epochs: local epochs.
    slice: the loop trains every `slice`-th pair; 0: no loop, only memory and scaling.
    goal: smallest ratio to reach; 0: none.
    """

    data: str
    users: int
    epochs: int
    slice: int
    goal: float


CASES = [
    Case("creditcard", 100, 30, 10, 6),
    Case("creditcard", 1000, 30, 50, 20),
    Case("creditcard", 10_000, 30, 0, 0),
    Case("mnist", 100, 1, 10, 1),
    Case("mnist", 1000, 1, 40, 1),
    Case("mnist", 10_000, 1, 100, 3),
]


def main() -> None:
    """Run every case in its own process, and print a table."""
    print(
        "5 silos, zipf users (0.5) and silos (2.0), batches of 64, one core; loop: scaled from a "
        "fair slice of pairs"
    )
    print(
        f"{'data':>10} {'users':>6} {'pairs':>6} {'epochs':>6} {'fedpriv':>9} {'loop':>10} "
        f"{'ratio':>6} {'goal':>5} "
        f"{'ms/user':>8} {'training MB':>11} {'process MB':>10}"
    )
    for case in CASES:
        r = in_fresh_process(measure, case)
        loop, ratio = (f"{r['loop']:8.1f} s", f"{r['ratio']:6.1f}") if case.slice else ("-", "-")
        print(
            f"{case.data:>10} {case.users:>6} {r['pairs']:>6} {case.epochs:>6} "
            f"{r['fedpriv']:7.2f} s {loop:>10} "
            f"{ratio:>6} {case.goal or '-':>5} {1e3 * r['fedpriv'] / case.users:8.2f} "
            f"{r['training_mb']:>11.0f} "
            f"{r['process_mb']:>10.0f}",
            flush=True,
        )


def measure(case: Case) -> dict[str, float]:
    """Seconds of both, their ratios, and peak memory: of the process, and what training adds."""
    silos, network = federation(case.data, case.users)
    loaded = peak_mb()
    pairs = sorted(
        ((silo, i) for silo in silos for i in range(len(silo.users))),
        key=lambda p: p[0].counts[p[1]],
    )
    chosen = pairs[case.slice // 2 :: case.slice] if case.slice else []
    # Warm-up: the first use of every kernel and shape.
    everybody(network, silos, 1)
    training = peak_mb() - loaded
    process = peak_mb()
    one_by_one(network, chosen, 1)
    turns = []
    for turn in range(TURNS):
        part = chosen[turn::TURNS]
        since = time.perf_counter()
        everybody(network, silos, case.epochs)
        middle = time.perf_counter()
        one_by_one(network, part, case.epochs)
        scale = batch_steps(pairs) / max(batch_steps(part), 1)
        turns.append((middle - since, scale * (time.perf_counter() - middle)))
    memory = {"training_mb": training, "process_mb": process}
    names = ("fedpriv", "loop", "ratio", "least", "most")
    return {"pairs": len(pairs)} | dict(zip(names, compared(turns))) | memory


def batch_steps(pairs) -> int:
    """Batch steps of an epoch over these (silo, user) pairs."""
    return sum(-(-int(silo.counts[i]) // 64) for silo, i in pairs)


def federation(data: str, users: int):
    """Five silos of a data set's records, zipf, and its network; on one thread from here on."""
    import torch

    from fedpriv.data.random_allocators import Zipf
    from fedpriv.data.silo import split_by_silo
    from fedpriv.models.cnn import MnistCnn
    from fedpriv.models.mlp import Mlp
    from fedpriv.util.streams import Streams

    torch.set_num_threads(1)
    data_set, records = load(data)
    silos = split_by_silo(records, Zipf(users, 5).allocate(records, data_set, Streams(0)), "cpu")
    model = Mlp([30] * 5, True, 0.5) if data == "creditcard" else MnistCnn([10, 20], 50, 0.5)
    return silos, model.build(data_set.shape, data_set.outputs)


def trained(network, silos, epochs: int, trainer: str = "auto", workers: int = 1):
    """A round of local training: blocks of users, silo by silo."""
    from fedpriv.models.tasks import Classification
    from fedpriv.training.description import Execution, Recipe, Training
    from fedpriv.training.users import silo_training
    from fedpriv.training.vectors import flatten
    from fedpriv.util.streams import Streams

    training = Training(Recipe(epochs, 64, 0.01), flatten(network).double().numpy())
    common = {"model": network, "task": Classification(), "streams": Streams(0), "round": 0}
    for number, silo in enumerate(silos):
        yield from silo_training(
            training,
            data=silo,
            party=f"silo-{number}",
            execution=Execution(trainer, workers),
            **common,
        ).run()


def everybody(network, silos, epochs: int, clip: float = 0.1) -> None:
    """fedpriv: all users of a silo in batches, then clipped."""
    for block in trained(network, silos, epochs):
        block.vectors.mul_((clip / block.vectors.norm(dim=1, keepdim=True)).clamp_(max=1))


def one_by_one(network, pairs, epochs: int, clip: float = 0.1) -> None:
    """The plain loop: a copy of the network, a DataLoader and an optimiser for each user."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    criterion = torch.nn.CrossEntropyLoss()
    for silo, i in pairs:
        rows = slice(silo.starts[i], silo.starts[i + 1])
        loader = DataLoader(TensorDataset(silo.x[rows], silo.y[rows]), batch_size=64, shuffle=True)
        local = copy.deepcopy(network).train()
        optimizer = torch.optim.SGD(local.parameters(), lr=0.01)
        for _ in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                criterion(local(x), y).backward()
                optimizer.step()
        with torch.no_grad():
            delta = torch.cat(
                [
                    (new - old).flatten()
                    for new, old in zip(local.parameters(), network.parameters())
                ]
            )
            delta *= min(1.0, clip / float(delta.norm()))


def load(name: str):
    """The data set's configuration and as many training records as the experiments use."""
    from fedpriv.data.base import Records
    from fedpriv.data.creditcard import CreditCard
    from fedpriv.data.mnist import Mnist
    from fedpriv.util.streams import Streams

    folder = Path(
        os.environ.get("FEDPRIV_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data"
    )
    data_set, rows = (CreditCard, 24_584) if name == "creditcard" else (Mnist, 60_000)
    rng = np.random.default_rng(0)
    if (folder / ("creditcard/creditcard.csv" if name == "creditcard" else "MNIST/raw")).exists():
        data = data_set(root=str(folder))
        train = data.load(Streams(0)).train
        pick = np.arange(rows) % len(train)
        x = train.x[pick]
        y = train.y[pick]
        if rows > len(train):
            x = x + 0.01 * rng.standard_normal(x.shape, dtype=np.float32)
    else:
        data = data_set()
        x = rng.standard_normal((rows, *data.shape), dtype=np.float32)
        y = rng.integers(0, data.outputs, rows)
    return data, Records(x, y)


def peak_mb() -> float:
    """Largest resident memory so far; Linux counts in KiB, macOS in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (
        2**20 if sys.platform == "darwin" else 2**10
    )
