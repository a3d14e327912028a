"""Noise that protects: nanoseconds a sample, one million at a time, on one core.

`discrete` is the integer noise of a message, for a deviation of some grid steps; `noised` adds
real-valued noise inside local training. `inverse` is the floating-point Gaussian that both replace,
the inverse normal distribution function of 52 bits from `os.urandom`: fast to write, and broken.
`seeded` is numpy's, which simulations use. Cases alternate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks._apart import apart

SIZE = 10**6
TURNS = 7
DEVIATIONS = (9, 1000, 2**20 + 7, 2**40 + 12345)


def main() -> None:
    for name, nanoseconds in apart(measure).items():
        print(f"{name:>24} {nanoseconds:8.1f} ns a sample")


def measure() -> dict[str, float]:
    """The fastest of some turns of each case."""
    from scipy.special import ndtri

    from fedpriv.mechanisms.discrete_sampling import discrete_gaussian
    from fedpriv.mechanisms.grid_noise import noised
    from fedpriv.util.streams import SystemGenerator

    system = SystemGenerator()
    seeded = np.random.Generator(np.random.Philox(0))
    signal = np.linspace(-1, 1, SIZE)

    def inverse() -> np.ndarray:
        bits = np.frombuffer(os.urandom(8 * SIZE), dtype=np.uint64) >> np.uint64(12)
        drawn: np.ndarray = ndtri((bits.astype(np.float64) + 0.5) * 2.0**-52)
        return drawn

    cases: dict[str, Callable[[], object]] = {
        "seeded": lambda: seeded.standard_normal(SIZE),
        "inverse": inverse,
        "noised": lambda: noised(signal, 0.37, system),
    }
    for deviation in DEVIATIONS:
        cases[f"discrete {deviation:.3g}"] = partial(discrete_gaussian, deviation, SIZE, system)
    best = dict.fromkeys(cases, np.inf)
    for _ in range(TURNS):
        for name, case in cases.items():
            since = time.process_time()
            case()
            best[name] = min(best[name], (time.process_time() - since) * 1e9 / SIZE)
    return best
