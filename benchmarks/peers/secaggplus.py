"""Flower's SecAgg+ beside our secagg: 100 parties, a million coordinates, 10 dropouts, threshold
67.

    python -m venv /elsewhere/flower && /elsewhere/flower/bin/pip install flwr==1.41.0
    python -m benchmarks.peers.secaggplus /elsewhere/flower/bin/python

Both sides are timed in the same run, each in a process of its own: processor seconds of what one
silo does after its keys are made (shares, masks, answer), and of the server from the masked vectors
to their sum. Flower computes modulo 2^32, which is our equal ring (bits=32); our default is 64.
Flower's parties check no signatures; ours do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks._apart import apart
from benchmarks.secure_aggregation import Case, measure

SILO, SERVER = 5, 30
"""How many times faster than Flower a silo's stage and the server's are to be."""


def main(python: str) -> None:
    """Time both, and print the ratios. python: an interpreter that has flwr."""
    ours = {bits: apart(measure, Case(100, 1_000_000, 10, bits)) for bits in (32, 64)}
    script = Path(__file__).with_name("_secaggplus.py")
    done = subprocess.run([python, str(script)], check=True, capture_output=True, text=True)
    theirs = json.loads(done.stdout.splitlines()[-1])
    stages = ("shares", "mask", "reveal")
    silo = sum(theirs[stage] for stage in stages)
    told = ", ".join(f"{stage} {theirs[stage]:.3f}" for stage in stages)
    print(f"flwr {theirs['version']}: silo {silo:.3f} s ({told}), server {theirs['unmask']:.2f} s")
    for bits, seconds in ours.items():
        own = sum(seconds[stage] for stage in stages)
        told = ", ".join(f"{stage} {seconds[stage]:.3f}" for stage in stages)
        print(f"fedpriv, {bits} bits: silo {own:.3f} s ({told}), server {seconds['unmask']:.2f} s")
        for who, ratio, least in (
            ("silo", silo / own, SILO),
            ("server", theirs["unmask"] / seconds["unmask"], SERVER),
        ):
            print(
                f"  {who}: {ratio:.1f} times faster (at least {least}: "
                f"{'met' if ratio >= least else 'MISSED'})"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
