"""Noise samplers that protect: nanoseconds a sample, one million at a time, on one core.

`discrete` is the integer noise of a message, for a deviation in grid steps. `noised` adds
real-valued noise inside local training. `inverse` is the floating-point Gaussian that both replace:
the inverse normal distribution function of 52 bits from `os.urandom`. It is simple, and insecure.
`seeded` is numpy's generator, which simulations use. Samplers take alternating turns; the ratio is
that of a sampler's processor seconds to those of `seeded`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks._fresh_process import in_fresh_process
from benchmarks._ratios import alternating_turns, ratio

SIZE = 10**6
TURNS = 7
DEVIATIONS = (9, 1000, 2**20 + 7, 2**40 + 12345)


def main() -> None:
    """Print a line for each sampler."""
    times = in_fresh_process(measure)
    for name, seconds in times.items():
        each = min(seconds) * 1e9 / SIZE
        print(f"{name:>24} {each:8.1f} ns a sample  {ratio(times['seeded'], seconds)}")


def measure() -> dict[str, list[float]]:
    """Processor seconds of every turn."""
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
    return alternating_turns(cases, TURNS)
