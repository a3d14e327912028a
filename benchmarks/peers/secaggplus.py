"""Flower's SecAgg+ beside our secagg: 100 parties with a million coordinates, 10 dropouts and
threshold 67; 1,000 parties with 100,000 coordinates and 50 dropouts on the sparse graph, with as
many shares and the same threshold for both, without the server's work.

    python -m venv /elsewhere/flower && /elsewhere/flower/bin/pip install flwr==1.42.0
    python -m benchmarks.peers.secaggplus /elsewhere/flower/bin/python [sparse | complete] [turns]

Both sides take alternating turns, each in its own process: processor seconds of one silo after its
keys are made (shares, masks, answer), and of the server from the masked vectors to their sum.
Flower computes modulo 2^32, as ours with bits=32; our default is 64. Flower's parties check no
signatures; ours do. Bytes are what one silo sends in a round: ours are whole signed messages,
Flower's the content of its records.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import replace
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


CASES = {
    "complete": Case(100, 1_000_000, 10, 64),
    "sparse": Case(1000, 100_000, 50, 64, sparse=True),
}


def main(python: str, name: str = "complete", turns: str = str(TURNS)) -> None:
    """Time both, and print the ratios. python: an interpreter that has flwr."""
    script = Path(__file__).with_name("_secaggplus.py")
    case = CASES[name]
    flower = []
    ours: dict[int, list[dict[str, float]]] = {32: [], 64: []}
    for _ in range(int(turns)):
        for bits, measured in ours.items():
            measured.append(in_fresh_process(measure, replace(case, bits=bits)))
        shares = round(measured[-1]["near"]) + 1
        sizes = (case.silos, case.parameters, case.dropped, shares, case.topology.shares)
        words = [python, str(script), *map(str, sizes)]
        run = subprocess.run(words, check=True, capture_output=True, text=True)
        flower.append(json.loads(run.stdout.splitlines()[-1]))
    print(f"{case.silos} silos, {case.parameters} numbers, {case.dropped} gone, {shares} shares")
    print(f"flwr {flower[0]['version']}: {shown(flower)}")
    for bits, measured in ours.items():
        print(f"fedpriv, {bits} bits: {shown(measured)}")
        parties = ((silo, SILO), (server, SERVER)) if "unmask" in flower[0] else ((silo, SILO),)
        for party, goal in parties:
            speed = ratio([party(turn) for turn in measured], [party(turn) for turn in flower])
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
    whole = statistics.median(map(silo, turns))
    sent = statistics.median(turn["sent"] for turn in turns)
    text = f"silo {whole:.3f} s ({stages}), a silo sends {sent:.3f} MB"
    if "unmask" not in turns[0]:
        return text
    return f"{text}, server {statistics.median(map(server, turns)):.2f} s"


if __name__ == "__main__":
    main(*sys.argv[1:])
