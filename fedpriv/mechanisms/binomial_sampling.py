"""Samples from Bin(N, 1/4), the noise of the shuffle model.

Seeded samples are numpy's. Noise that protects somebody comes from the operating system's bits. Up
to `FEW` trials are tossed one by one. Beyond, a candidate is a discrete Gaussian around N / 4, a
little wider than the binomial and sampled exactly (`discrete_sampling`). It is accepted in
proportion to the ratio of the two probabilities.

That ratio is computed in float64. Its logarithm is a sum of deviances m phi((k - m) / m), with the
power series of phi(t) = (1 + t) ln(1 + t) - t (C. Loader, Fast and accurate computation of binomial
probabilities, 2000), and of short terms, none above a few hundred. So every probability is right up
to a factor within exp(+-`ERROR`), which costs a release of d coordinates 2 d `ERROR` in epsilon.
This does not hold beyond 11 standard deviations, where 52 bits are too few to accept with small
probabilities; beyond `FARTHEST` candidates are rejected. Together that costs 1e-26 in delta.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.accountants.shifted_binomial import VARIANCE, P
from fedpriv.mechanisms.discrete_sampling import Generator, discrete_gaussian
from fedpriv.util.streams import SystemGenerator

MOST_TRIALS = 2**51
"""Largest N: up to here N and every count are float64s."""
FEW = 2**13
FARTHEST = 15.0
ERROR = 2.0**-38
_TERMS = 40  # of the series of phi; |t| stays below 0.29, so the rest is below 1e-21
_BYTES_AT_ONCE = 2**22


def binomial(trials: int, size: int, rng: Generator) -> np.ndarray:
    """(size,) int64 independent samples of Bin(trials, 1/4). Raises ValueError beyond
    `MOST_TRIALS`."""
    if not 0 <= trials <= MOST_TRIALS:
        raise ValueError(f"{trials} trials: from 0 to 2^51")
    if not isinstance(rng, SystemGenerator):
        return rng.binomial(trials, P, size)
    return _tossed(trials, size, rng) if trials <= FEW else _accepted(trials, size, rng)


def _tossed(trials: int, size: int, rng: SystemGenerator) -> np.ndarray:
    """Each trial succeeds where two random bits are both one."""
    width = -(-trials // 8)
    mask = np.full(width, 255, dtype=np.uint8)
    if trials % 8:
        mask[-1] = 2 ** (trials % 8) - 1
    counts = np.zeros(size, dtype=np.int64)
    step = max(1, _BYTES_AT_ONCE // max(width, 1))
    for start in range(0, size, step):
        part = counts[start : start + step]
        one, other = (np.frombuffer(rng.bytes(width * len(part)), dtype=np.uint8) for _ in range(2))
        part += np.bitwise_count((one & other).reshape(len(part), width) & mask).sum(
            axis=1, dtype=np.int64
        )
    return counts


def _accepted(trials: int, size: int, rng: SystemGenerator) -> np.ndarray:
    deviation = math.sqrt(VARIANCE * trials)
    # Wide enough for the binomial's longer upper tail, exp(w^3 / (12 sigma)) at w deviations, as
    # far as `FARTHEST`.
    sigma = math.ceil(1.001 * deviation + 1.5)
    middle = round(P * trials)
    reach = FARTHEST * deviation
    # The ratio has one flat top: between points of this grid it is higher by less than 2^-20.
    grid = np.linspace(-reach, reach, 4097)
    most = float(log_ratio(grid, trials, sigma).max()) + 2.0**-20
    counts = np.empty(size, dtype=np.int64)
    missing = np.arange(size)
    while len(missing):
        offset = discrete_gaussian(sigma, len(missing), rng)
        near = abs(offset) <= reach
        likely = np.zeros(len(missing))
        likely[near] = np.exp(log_ratio(offset[near].astype(float), trials, sigma) - most)
        if likely.max() > 1:
            raise ArithmeticError("a chance above 1: samples would not be binomial")
        accepted = rng.random(len(missing)) < likely
        counts[missing[accepted]] = middle + offset[accepted]
        missing = missing[~accepted]
    return counts


def log_ratio(offset: np.ndarray, trials: int, sigma: int) -> np.ndarray:
    """ln of P(Bin = round(N / 4) + offset) over the Gaussian's weight exp(-offset^2 / (2 sigma^2)),
    up to a constant.

    Without the constant: Stirling's errors and square roots at their values for N / 4 are left out.
    """
    ones = P * trials
    zeros = (1 - P) * trials
    middle = round(ones)
    x = (middle - ones) + offset
    k = middle + offset
    deviance = ones * _phi(x / ones) + zeros * _phi(-x / zeros)
    roots = 0.5 * (np.log1p(x / ones) + np.log1p(-x / zeros))
    stirling = _stirling(k) + _stirling(trials - k)
    ratio: np.ndarray = (offset / sigma) ** 2 / 2 - deviance - roots - stirling
    return ratio


def _phi(t: np.ndarray) -> np.ndarray:
    """(1 + t) ln(1 + t) - t for small t: the sum over j >= 2 of (-t)^j / (j (j - 1))."""
    total = np.zeros_like(t)
    for j in range(_TERMS, 1, -1):
        total = total * -t + 1 / (j * (j - 1))
    squared: np.ndarray = total * t**2
    return squared


def _stirling(n: np.ndarray) -> np.ndarray:
    """ln n! less Stirling's formula, for n >= 1000 up to 1e-24."""
    error: np.ndarray = (1 / 12 - (1 / 360 - 1 / 1260 / n**2) / n**2) / n
    return error
