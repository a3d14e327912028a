"""A whole round of ULDP-AVG-w on a GPU, beside the same on the processor and beside uldp-fl on that
GPU.

    make bench-gpu ULDP_FL=/elsewhere/uldp-fl/src

As `benchmarks.peers.uldp_fl`, but in seconds of the clock, since a processor may sleep while it
waits for a GPU. The processor's rounds are those of one thread.
"""

from __future__ import annotations

import statistics
import sys
import time

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import compared
from benchmarks._rounds import in_memory, timed
from benchmarks.local_training import Case, load
from benchmarks.peers._report import shown, write
from benchmarks.peers.uldp_fl import CASES, TURNS, theirs, words

COLUMNS = (
    "data",
    "users",
    "epochs",
    "slice",
    "gpu",
    "processor",
    "uldp-fl",
    "ratio",
    "least",
    "most",
)


def main(source: str) -> None:
    """Every case in a process of its own. source: the folder src of a checkout of uldp-fl."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("bench-gpu: torch sees no CUDA device here")
    rows = []
    for case in CASES:
        numbers = (
            case.data,
            case.users,
            case.epochs,
            case.slice,
            *in_fresh_process(measure, case, source, "cuda"),
        )
        rows.append(shown(dict(zip(COLUMNS, numbers))))
    print(write("gpu", rows))


def measure(case: Case, source: str, device: str) -> tuple[float, ...]:
    """Median seconds a round of ours on the device, on the processor, and of theirs on the device;
    median, least and largest number of times that ours on the device is as fast as theirs in a
    turn."""
    import torch

    def now() -> float:
        if device != "cpu":
            torch.cuda.synchronize()
        return time.perf_counter()

    data_set, records = load(case.data)
    with (
        in_memory(data_set, records, *words(case), f"device={device}") as ours,
        in_memory(data_set, records, *words(case), "device=cpu") as processor,
    ):
        trainers, scale = theirs(case, source, ours.silo_data, device)
        simulations = ours, processor
        states = [
            timed(prepared, prepared.state, 1)[0] for prepared in simulations
        ]  # meets every shape
        turns = []
        for turn in range(TURNS):
            seconds = []
            for place, prepared in enumerate(simulations):
                states[place], taken = timed(prepared, states[place], turn + 2, now)
                seconds.append(taken)
            since = now()
            for trainer in trainers:
                trainer.train(turn)
            turns.append((*seconds, scale * (now() - since)))
    own, peer, *ratios = compared([(here, there) for here, _, there in turns])
    return own, statistics.median(taken for _, taken, _ in turns), peer, *ratios


if __name__ == "__main__":
    main(*sys.argv[1:])
