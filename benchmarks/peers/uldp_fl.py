"""uldp-fl, the published code of Uldp-FL, beside ours: a whole round of ULDP-AVG-w.

    git clone https://github.com/FumiyukiKato/uldp-fl /elsewhere/uldp-fl
    python -m benchmarks.peers.uldp_fl /elsewhere/uldp-fl/src

Both run in one process on one thread, in turns, on the same silos, users, records, batch sizes and epochs, with the
same network; uldp-fl, which was written for torch 2.0, runs on this environment's torch. Ours is all of a round:
every silo's training, clipping, weighting and noise, its message, the sum and the server's step. Theirs is
`ClassificationTrainer.train` of each silo with every m-th of its users by number of records, scaled by the batch
steps it left out; its loaders, which it makes once a run, and its server are not counted. Records: see
`benchmarks.local_training`.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import dataclass, replace

from benchmarks._apart import apart
from benchmarks.local_training import load
from benchmarks.peers._report import write


@dataclass(frozen=True)
class Case:
    """slice: theirs trains every `slice`-th user of a silo. goal: least ratio."""

    data: str
    users: int
    epochs: int
    slice: int
    goal: float
    turns: int = 5


CASES = [
    Case("creditcard", 100, 30, 20, 70),
    Case("creditcard", 1000, 30, 150, 250),
    Case("creditcard", 10_000, 30, 1500, 0),
    Case("mnist", 100, 2, 20, 4),
    Case("mnist", 1000, 2, 100, 9),
    Case("mnist", 10_000, 2, 500, 20),
]
COLUMNS = ("data", "users", "epochs", "slice", "fedpriv", "uldp-fl", "ratio", "least", "most", "goal")


def main(source: str, *names: str) -> None:
    """Every case in a process of its own. source: the folder src of a checkout of uldp-fl. names: of data sets; all."""
    rows = []
    for case in CASES:
        if not names or case.data in names:
            measured = apart(measure, case, source)
            rows.append(dict(zip(COLUMNS, (case.data, case.users, case.epochs, case.slice, *measured, case.goal))))
            print("  ".join(f"{key} {_short(value)}" for key, value in rows[-1].items()), flush=True)
    print(write("uldp_fl", rows))


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def measure(case: Case, source: str) -> tuple[float, float, float, float, float]:
    """Median processor seconds a round of ours and of theirs, and median, least and largest ratio of a turn."""
    import torch

    torch.set_num_threads(1)
    simulation = ours(case)
    with simulation:
        trainers, scale = theirs(case, source, simulation.silo_data)
        state = simulation.run_round(simulation.queries(1), simulation.state).state  # compiles, and meets every shape
        seconds: list[tuple[float, float]] = []
        for turn in range(case.turns):
            since = time.process_time()
            state = simulation.run_round(simulation.queries(turn + 2), state).state
            between = time.process_time()
            for trainer in trainers:
                trainer.train(turn)
            seconds.append((between - since, scale * (time.process_time() - between)))
    ratios = [other / own for own, other in seconds]
    own, other = (statistics.median(column) for column in zip(*seconds))
    return own, other, statistics.median(ratios), min(ratios), max(ratios)


def ours(case: Case):
    """A run of the command's configuration, on the benchmark's records."""
    from fedpriv.compose import one_experiment
    from fedpriv.data.base import Corpus
    from fedpriv.simulation import prepare

    kind, records = load(case.data)
    small = type(records)(records.x[:100], records.y[:100])

    class InMemory(type(kind)):
        def load(self, streams):
            return Corpus(records, small)

    words = (f"data={case.data}", f"preset.n_users={case.users}", f"preset.local_epochs={case.epochs}")
    exp = one_experiment("algo=uldp_avg_w", "allocator=zipf", "device=cpu", *words)
    return prepare(replace(exp, data=InMemory(**vars(exp.data))))


def theirs(case: Case, source: str, silos):
    """A trainer of each silo, and how many times their batch steps all of them would take."""
    import torch

    sys.path.insert(0, source)
    from local_trainer import ClassificationTrainer
    from models import create_model

    trainers, steps = [], [0, 0]
    for number, silo in enumerate(silos):
        order = silo.counts.argsort()
        # Where the slice begins differs by silo, so that few users a silo are not all of one size.
        chosen = order[
            (case.slice // 2 + number * case.slice // len(silos)) % min(case.slice, len(order)) :: case.slice
        ]
        rows = [row for i in chosen for row in range(silo.starts[i], silo.starts[i + 1])]
        batches = -(-silo.counts // 64)
        steps[0] += int(batches.sum())
        steps[1] += int(batches[chosen].sum())
        trainer = ClassificationTrainer(
            base_seed=0,
            model=create_model("cnn", case.data, 0),
            silo_id=number,
            device="cpu",
            agg_strategy="ULDP-AVG-w",
            local_train_dataset=[(silo.x[row], silo.y[row]) for row in rows],
            local_test_dataset=[(silo.x[0], silo.y[0])],
            user_histogram=None,
            user_ids_of_local_train_dataset=[int(i) for i in chosen for _ in range(silo.counts[i])],
            local_learning_rate=0.01,
            local_batch_size=64,
            local_epochs=case.epochs,
            local_sigma=5.0,
            local_clipping_bound=0.1,
            user_weights={int(i): 0.2 for i in chosen},
            n_silo_per_round=len(silos),
            dataset_name=case.data,
        )
        trainer.model = trainer.model.to(torch.float32)
        trainers.append(trainer)
    return trainers, steps[0] / steps[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
