"""uldp-fl, the published code of Uldp-FL, beside ours: a whole round of ULDP-AVG-w.

    git clone https://github.com/FumiyukiKato/uldp-fl /elsewhere/uldp-fl
    python -m benchmarks.peers.uldp_fl /elsewhere/uldp-fl/src

Both take alternating turns in one process on one thread. Silos, users, records, batch sizes, epochs
and network are the same. uldp-fl was written for torch 2.0 and runs on this environment's torch.
Ours is a whole round: every silo's training, clipping, weighting and noise, its message, the sum
and the server's step. Theirs is `ClassificationTrainer.train` of each silo with every m-th of its
users by number of records, scaled by the omitted batch steps. Its loaders, made once a run, and its
server are not counted. Records: see `benchmarks.local_training`.
"""

from __future__ import annotations

import sys
import time

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared
from benchmarks._rounds import in_memory, timed
from benchmarks.local_training import Case, load
from benchmarks.peers._report import shown, write

TURNS = 5
CASES = [
    Case("creditcard", 100, 30, 20, 70),
    Case("creditcard", 1000, 30, 150, 250),
    Case("creditcard", 10_000, 30, 1500, 0),
    Case("mnist", 100, 2, 20, 4),
    Case("mnist", 1000, 2, 100, 9),
    Case("mnist", 10_000, 2, 500, 20),
]
COLUMNS = (
    "data",
    "users",
    "epochs",
    "slice",
    "fedpriv",
    "uldp-fl",
    "ratio",
    "least",
    "most",
    "goal",
)


def main(source: str, *names: str) -> None:
    """Every case in a process of its own. source: the folder src of a checkout of uldp-fl. names:
    of data sets; all."""
    rows = []
    for case in CASES:
        if not names or case.data in names:
            numbers = (
                case.data,
                case.users,
                case.epochs,
                case.slice,
                *in_fresh_process(measure, case, source),
                case.goal,
            )
            rows.append(shown(dict(zip(COLUMNS, numbers))))
    print(write("uldp_fl", rows))


def measure(case: Case, source: str) -> tuple[float, float, float, float, float]:
    """Median processor seconds a round of ours and of theirs, and median, least and largest ratio
    of a turn."""
    import torch

    torch.set_num_threads(1)
    data_set, records = load(case.data)
    with in_memory(data_set, records, *words(case), "device=cpu") as prepared:
        trainers, scale = theirs(case, source, prepared.silo_data)
        state, _ = timed(prepared, prepared.state, 1)  # compiles, and meets every shape
        turns: list[tuple[float, float]] = []
        for turn in range(TURNS):
            state, own = timed(prepared, state, turn + 2)
            since = time.process_time()
            for trainer in trainers:
                trainer.train(turn)
            turns.append((own, scale * (time.process_time() - since)))
    return compared(turns)


def words(case: Case) -> tuple[str, ...]:
    """Of the command line, but for the device."""
    own = f"data={case.data}", f"preset.n_users={case.users}", f"preset.local_epochs={case.epochs}"
    return "algo=uldp_avg_w", "allocator=zipf", *own


def theirs(case: Case, source: str, silos, device: str = "cpu"):
    """On the device, a trainer of each silo, and how many times their batch steps all of them would
    take."""
    sys.path.insert(0, source)
    from local_trainer import ClassificationTrainer
    from models import create_model

    trainers = []
    steps = [0, 0]
    for number, silo in enumerate(silos):
        order = silo.counts.argsort()
        # Where the slice begins differs by silo, so that few users a silo are not all of one size.
        chosen = order[
            (case.slice // 2 + number * case.slice // len(silos))
            % min(case.slice, len(order)) :: case.slice
        ]
        rows = [row for i in chosen for row in range(silo.starts[i], silo.starts[i + 1])]
        batches = -(-silo.counts // 64)
        steps[0] += int(batches.sum())
        steps[1] += int(batches[chosen].sum())
        trainer = ClassificationTrainer(
            base_seed=0,
            model=create_model("cnn", case.data, 0),
            silo_id=number,
            device=device,
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
        trainers.append(trainer)
    return trainers, steps[0] / steps[1]


if __name__ == "__main__":
    main(*sys.argv[1:])
