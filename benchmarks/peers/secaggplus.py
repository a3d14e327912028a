"""Flower's SecAgg+ beside our secagg: 100 parties, a million coordinates, 10 dropouts, threshold
67.

    python -m venv /elsewhere/flower && /elsewhere/flower/bin/pip install flwr==1.41.0
    python -m benchmarks.peers.secaggplus /elsewhere/flower/bin/python

Both sides take alternating turns, each in its own process: processor seconds of one silo after its
keys are made (shares, masks, answer), and of the server from the masked vectors to their sum.
Flower computes modulo 2^32, as ours with bits=32; our default is 64. Flower's parties check no
signatures; ours do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import ratio
from benchmarks.secure_aggregation import Case, measure

TURNS = 3
STAGES = ("shares", "mask", "reveal")
SILO = 5
"""Goal for the ratio of a silo's stages."""
SERVER = 30
"""Goal for the server's ratio."""


def main(python: str) -> None:
    """Time both, and print the ratios. python: an interpreter that has flwr."""
    script = Path(__file__).with_name("_secaggplus.py")
    flower = []
    ours: dict[int, list[dict[str, float]]] = {32: [], 64: []}
    for _ in range(TURNS):
        for bits, turns in ours.items():
            turns.append(in_fresh_process(measure, Case(100, 1_000_000, 10, bits)))
        run = subprocess.run([python, str(script)], check=True, capture_output=True, text=True)
        flower.append(json.loads(run.stdout.splitlines()[-1]))
    print(f"flwr {flower[0]['version']}: {shown(flower)}")
    for bits, turns in ours.items():
        print(f"fedpriv, {bits} bits: {shown(turns)}")
        for party, goal in ((silo, SILO), (server, SERVER)):
            speed = ratio([party(turn) for turn in turns], [party(turn) for turn in flower])
            print(f"  {party.__name__}: {speed}, goal {goal}")


def silo(turn: dict[str, float]) -> float:
    """Seconds of one silo."""
    return sum(turn[stage] for stage in STAGES)


def server(turn: dict[str, float]) -> float:
    """Seconds of the server."""
    return turn["unmask"]


def shown(turns: list[dict[str, float]]) -> str:
    """Median seconds."""
    stages = ", ".join(f"{s} {statistics.median(t[s] for t in turns):.3f}" for s in STAGES)
    whole, unmask = (statistics.median(map(party, turns)) for party in (silo, server))
    return f"silo {whole:.3f} s ({stages}), server {unmask:.2f} s"


if __name__ == "__main__":
    main(*sys.argv[1:])
