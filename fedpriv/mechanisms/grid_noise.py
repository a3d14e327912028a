"""Gaussian noise that protects somebody: exactly sampled integers, added to integers.

A Gaussian in floating point has holes in its support, and they move with what it is added to: I.
Mironov, On significance of the least significant bits for differential privacy (CCS 2012). Here the
quantity to hide is rounded to a grid first, and the noise is a discrete Gaussian on the same grid
(C. Canonne, G. Kamath, T. Steinke, The discrete Gaussian for differential privacy, NeurIPS 2020).
So every input can lead to every output.

A sum of n independent shares of s steps each differs from one discrete Gaussian with S^2 = n s^2,
in each coordinate and at every integer, by a factor within exp(+-tau), tau = 10 * sum over k = 1 ..
n - 1 of exp(-2 pi^2 s^2 k / (k + 1)) (P. Kairouz, Z. Liu, T. Steinke, The distributed discrete
Gaussian mechanism for federated learning with secure aggregation, ICML 2021); a share spans at
least `LEAST_STEPS` steps.

Why it costs what a Gaussian costs, in any dimension, sampled or not. Let X be Gaussian with
variance S^2 - t^2 around an integer vector, and round each coordinate at random, to k with
probability proportional to exp(-(k - X)^2 / (2 t^2)). By Poisson summation the sum of these weights
over all integers k is sqrt(2 pi) t (1 + e) whatever X is, with |e| <= eta = 2.1 exp(-2 pi^2 t^2);
and the two densities convolve to that of variance S^2. So the rounded X has, up to a factor within
(1 + eta) / (1 - eta) a coordinate, the probabilities of the same integer vector under discrete
noise S: on integer signals the mechanism is a function of a Gaussian mechanism's output, and every
certificate of that one holds for it, whatever the sampling, the group and the accountant
(post-processing; cf. C. Peikert, An efficient and parallel Gaussian sampler for lattices, CRYPTO
2010, Theorem 3.1). With t = `ROUNDING` steps eta is 1.1e-34 and tau below 1e-270 n: for d
coordinates in T releases, epsilon and ln(delta) move by less than 1e-33 d T, which float64 does not
show. Each share is drawn with s^2 + t^2 in place of s^2, so that what is left of any of them is the
declared Gaussian. It is larger by 1.7 parts in 8 at most, and by 2e-5 of it from 50,000 steps on.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.mechanisms.discrete_sampling import Generator, discrete_gaussian
from fedpriv.util.streams import SystemGenerator

ROUNDING = 2.0
"""t: grid steps of deviation that noise has beyond the declared deviation; variances add."""

FINE_BITS = 48
"""Where messages have no grid, a declared deviation spans at least 2^48 and less than 2^49 grid
steps."""
SLACK = 2**-14
"""How much larger such noise is than declared, relatively: it pays for rounding the signal."""
MOST_NOISE = 2.0**16
"""Largest noise multiplier of an event: the slack pays for rounding up to 2^5 times as much. So it
does where an event stands for up to 2^10 releases of the same noise, as that of several steps on a
record's gradients."""
MOST_SIZE = 2**24
LARGEST = 2.0**61
"""Largest signal in steps, so that signal plus noise fits 63 bits."""


def whole_steps(declared: float) -> int:
    """Parameter of the integer noise that costs no more than Gaussian noise of `declared` grid
    steps; 0 for none."""
    return math.ceil(math.hypot(declared, ROUNDING)) if declared else 0


def noised(signal: np.ndarray, deviation: float, rng: Generator) -> np.ndarray:
    """`signal` (d,) float64 plus Gaussian noise of standard deviation `deviation`: (d,) float64.

    Seeded noise is numpy's. Noise of the operating system is an integer number of steps of a power
    of two, and so is the rounded signal. The result is rounded to float64 only after the noise is
    added. Rounding lets neighbours differ by one more step in each coordinate, sqrt(d) steps in
    all. The deviation is larger by `SLACK` to pay for it. That suffices where the declared
    deviation is at most 2^5 `MOST_NOISE` times what a unit moves, since for d <= `MOST_SIZE`

        sqrt(d) 2^-48 * 2^21 <= 2^-15 < 2^-14.

    Raises ValueError for a longer signal.
    """
    if not isinstance(rng, SystemGenerator):
        return signal + rng.standard_normal(len(signal)) * deviation
    if not deviation:
        return signal
    if len(signal) > MOST_SIZE:
        raise ValueError(
            f"{len(signal)} coordinates: noise in local training is proved for {MOST_SIZE} of them"
        )
    fine = FINE_BITS + 1 - math.frexp(deviation)[1]
    with np.errstate(over="ignore"):
        steps = np.clip(np.rint(np.ldexp(signal, fine)), -LARGEST, LARGEST).astype(np.int64)
    steps += discrete_gaussian(
        whole_steps(math.ldexp(deviation * (1 + SLACK), fine)), len(signal), rng
    )
    noisy: np.ndarray = np.ldexp(steps.astype(np.float64), -fine)
    return noisy
