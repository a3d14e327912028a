"""Exact samples from the discrete Gaussian over the integers, by integer arithmetic alone.

C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy (NeurIPS 2020), Algorithms 1 to 3: a
candidate is accepted by Bernoulli trials whose probabilities are exp(-x) for rational x, and such a trial is made of
trials with rational probabilities (Algorithm 1, after von Neumann and Forsythe). Their candidate is a discrete Laplace
number, cut into a multiple V of the scale and a remainder U (Algorithm 2). Here V already carries its part of the
Gaussian weight, as in C. Karney, Sampling exactly from the normal distribution (ACM TOMS 2016), which needs half as
many trials:

    |Y| = V sigma + U,  0 <= U < sigma
    exp(-Y^2 / (2 sigma^2)) = exp(-V^2 / 2) * exp(-U / sigma)^V * exp(-(U / sigma)^2 / 2).

V is the inverse of its distribution function at a uniform number of which 62 bits are drawn; the few values of these
bits that leave V open get further bits, as many as it takes. So no probability is ever rounded, and every number drawn
is one of `rng.integers`, which is exact too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedpriv.streams import SystemGenerator

    Generator = np.random.Generator | SystemGenerator

MAX_SIGMA = 2**50
MAX_MULTIPLE = 2**63 // MAX_SIGMA
"""V + 1 must stay below, so that V sigma + U fits int64. It fails with probability below exp(-2^24)."""

WORD_BITS = 62
GUARD_BITS = 64
BLOCK = 2**16
"""Candidates made at a time, few enough for the processor's cache."""


def discrete_gaussian(sigma: int, size: int, rng: Generator) -> np.ndarray:
    """(size,) int64 independent samples, k with probability proportional to exp(-k^2 / (2 sigma^2)).

    sigma: from 1 to 2^50. The only products are V sigma; numbers drawn stay below 2 sigma or 2^62. Raises
    ValueError for another sigma, and OverflowError should a sample not fit.
    """
    if not 1 <= sigma <= MAX_SIGMA or sigma != int(sigma):
        raise ValueError(f"sigma={sigma}: an integer from 1 to {MAX_SIGMA}")
    samples, filled = np.empty(size, dtype=np.int64), 0
    while filled < size:
        # 71 of 100 candidates survive for a large sigma; a second helping makes up for bad luck.
        block = _accepted(int(sigma), min(BLOCK, (size - filled) * 3 // 2 + 16), rng)[: size - filled]
        samples[filled : filled + len(block)] = block
        filled += len(block)
    return samples


def _accepted(sigma: int, candidates: int, rng: Generator) -> np.ndarray:
    """The samples that are left of `candidates` candidates."""
    multiple = multiples(candidates, rng)
    if multiple.max() + 1 >= MAX_MULTIPLE:
        raise OverflowError("a sample beyond 2^63")
    drawn = rng.integers(0, 2 * sigma, size=candidates)
    negative, remainder = (drawn & 1).astype(bool), drawn >> 1
    left = np.flatnonzero(bernoulli_exp(candidates, rng, (remainder, remainder), sigma, divisor=2))
    left = left[~negative[left] | (multiple[left] > 0) | (remainder[left] > 0)]  # zero has one sign
    accepted = np.zeros(candidates, dtype=bool)
    done = 0
    while len(left):
        passed = multiple[left] == done
        accepted[left[passed]] = True
        left, done = left[~passed], done + 1
        left = np.compress(bernoulli_exp(len(left), rng, (remainder[left],), sigma), left)
    samples: np.ndarray = multiple * sigma + remainder
    np.negative(samples, out=samples, where=negative)
    return samples[accepted]


def bernoulli_exp(
    size: int, rng: Generator, numerators: tuple[np.ndarray, ...] = (), denominator: int = 1, divisor: int = 1
) -> np.ndarray:
    """(size,) bool, true with probability exp(-x), where x is the product of the fractions numerator / denominator,
    over the divisor (Algorithm 1).

    numerators: (size,) integers from 0 to denominator each.
    """
    # Trial k succeeds with probability x / k; the number of the first trial that fails is odd with probability exp(-x).
    odd, left, k = np.ones(size, dtype=bool), np.arange(size), 1
    while len(left):
        if divisor * k > 1:
            left = np.compress(rng.integers(0, divisor * k, size=len(left)) == 0, left)
        for numerator in numerators:
            left = np.compress(rng.integers(0, denominator, size=len(left)) < numerator[left], left)
        k += 1
        odd[left] = k % 2 == 1
    return odd


def multiples(size: int, rng: Generator, bits: int = WORD_BITS) -> np.ndarray:
    """(size,) int64, v = 0, 1, ... with probability proportional to exp(-v^2 / 2).

    bits: drawn for each at first; any number of them gives the same distribution.
    """
    words = rng.integers(0, 2**bits, size=size)
    result, left, above, unsure = np.zeros(size, dtype=np.int64), np.arange(size), words, []
    for low, high in thresholds(bits):
        unsure.append(np.compress((above >= low) & (above < high), left))
        below = above < low
        left, above = np.compress(below, left), np.compress(below, above)
        result[left] += 1
    for index in np.concatenate(unsure):
        result[index] = _refined(int(words[index]), bits, rng)
    return result


def _refined(word: int, bits: int, rng: Generator) -> int:
    """V for a uniform number that begins with the word's bits and goes on as far as needed."""
    value = None
    while value is None:
        word, bits = word << WORD_BITS | int(rng.integers(0, 2**WORD_BITS, size=1)[0]), bits + WORD_BITS
        value = _multiple_at(word, bits)
    return value


def _multiple_at(word: int, bits: int) -> int | None:
    """V for every uniform number that begins with the word's bits; None if they do not all have the same."""
    for value, (low, high) in enumerate(thresholds(bits)):
        if word >= high:
            return value
        if word >= low:
            return None
    raise AssertionError("the last lower bound is zero")


@lru_cache(maxsize=8)
def thresholds(bits: int) -> tuple[tuple[int, int], ...]:
    """Integers low <= 2^bits P(V >= v) <= high for v = 1, 2, ... up to the first low that is zero.

    A uniform number that begins with the `bits` bits of w lies below P(V >= v) if w < low, and not if w >= high.
    """
    # In units of 2^-digits every quotient and product loses less than one. The root has fewer terms than digits, and so
    # has the sum of weights: all losses together stay below 2^5 digits^2, far below `error`.
    digits = bits + GUARD_BITS
    root, term, terms = 0, 1 << digits, 0
    while term:  # exp(-1/2) = 1 - 1/2 + 1/(2 * 4) - ...
        root += -term if terms % 2 else term
        terms += 1
        term //= 2 * terms
    weights, factor, inverse_e = [1 << digits], root, root * root >> digits
    while weights[-1]:  # exp(-v^2 / 2) = exp(-(v - 1)^2 / 2) * exp(-(v - 1/2))
        weights.append(weights[-1] * factor >> digits)
        factor = factor * inverse_e >> digits
    total, error = sum(weights), 1 << (GUARD_BITS // 2)
    bounds: list[tuple[int, int]] = []
    while not bounds or bounds[-1][0]:
        tail = sum(weights[len(bounds) + 1 :])
        low = (max(tail - error, 0) << bits) // (total + error)
        bounds.append((low, -((-(tail + error) << bits) // (total - error))))
    return tuple(bounds)
