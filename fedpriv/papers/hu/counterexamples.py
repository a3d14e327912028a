"""Losses on which the privacy claims of Hu, Guo, Gong (CDP federated learning) are false.

Symbols as in `fedpriv.algorithms.cdp_fedavg`: r devices, m records each, tau steps on batches of
gamma records, noise sigma, clip G. The step size is 1, and the model is one number that starts at
0. All but one device forget their old noise: their records have loss theta^2 / 2, so a step of size
1 leaves only the last noise.

A  The last device's records have linear losses. One of them has slope G or -G. Batches are full,
   so there are tau passes. The device keeps the noise of tau steps and tau shifts of 2G / m, while
   the variance is (tau + r - 1) sigma^2. Theorem 1 counts on r tau sigma^2. All losses are convex
   and smooth.
B  One pass of two batches. One record of the last device has a linear loss of slope G or -G. The
   others have loss -a theta^2 / 2, whose gradients stay below G. If the record comes first, the
   second step multiplies its shift by 1 + a. Theorem 1 counts one record's 2G / gamma as the shift
   of the whole model.

The tests run both systems.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.zcdp import zcdp_rho
from fedpriv.papers.counterexample import Counterexample

DELTA = 1e-4


def paper_sigma(steps: int, silos: int, *, records: int, size: int, epsilon: float) -> float:
    """Noise over G at which Theorem 1 gives `epsilon` for one round.

    steps: tau.
    silos: r.
    records: m.
    size: gamma.
    """
    return math.sqrt(2 * steps / (silos * records * size * zcdp_rho(epsilon, DELTA)))


def convex_gap(steps: int, silos: int, epsilon: float) -> float:
    """System A with the noise for `epsilon`: the distance of the two sums' means over their
    standard deviation."""
    sigma = paper_sigma(steps, silos, records=1, size=1, epsilon=epsilon)
    return 2 * steps / (sigma * math.sqrt(steps + silos - 1))


def mixture(
    silos: int, growth: float, epsilon: float, *, size: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """System B with a = `growth`: means (2,) and standard deviations (2,) of the sum in units of G.

    The first entry is for the record in the first batch, the second for the second batch; both are
    equally likely. With slope -G the means change their signs.
    """
    sigma = paper_sigma(2, silos, records=2 * size, size=size, epsilon=epsilon)
    # In the record's own batch, one record fewer amplifies.
    amplified = np.array([1 + growth, 1 + growth * (size - 1) / size])
    means = -np.array([amplified[0], 1.0]) / size
    return means, sigma * np.sqrt(amplified**2 + silos)


def mixture_delta(epsilon: float, means: np.ndarray, stds: np.ndarray) -> float:
    """delta at `epsilon` between a mixture of two equally likely Gaussians and its mirror image."""
    from scipy.stats import norm

    reach = np.abs(means).max() + 12 * stds.max()
    y = np.linspace(-reach, reach, 200_001)
    p = 0.5 * sum(norm.pdf(y, mean, std) for mean, std in zip(means, stds))
    return float(np.maximum(p - np.exp(epsilon) * p[::-1], 0).sum() * (y[1] - y[0]))


def mixture_epsilon(delta: float, means: np.ndarray, stds: np.ndarray) -> float:
    """Epsilon at `delta` between the same two."""
    from scipy.optimize import brentq

    def excess(epsilon: float) -> float:
        return mixture_delta(epsilon, means, stds) - delta

    return float(brentq(excess, 0, 100, xtol=1e-10))


def baseline_rho(silos: int, participants: int, epsilon: float) -> float:
    """The zCDP of the paper's DP-SGD baseline on a linear loss.

    Its noise is made for `epsilon` as if all `silos` added noise, but only `participants` do.
    """
    return zcdp_rho(epsilon, DELTA) * silos / participants


def counterexamples() -> list[Counterexample]:
    """Systems A and B, and the DP-SGD baseline with 10 of 16 devices."""

    def gaussian(rho: float) -> float:
        return gaussian_epsilon(math.sqrt(2 * rho), DELTA)

    found = []
    for steps, silos in ((10, 10), (40, 10), (10, 100)):
        name = f"Hu et al., Theorem 1: convex losses, tau = {steps}, r = {silos}"
        note = f"delta = {DELTA:g}; training contracts the other devices' noise"
        attained = gaussian_epsilon(convex_gap(steps, silos, 10.0), DELTA)
        local = gaussian(silos * zcdp_rho(10, DELTA))
        found.append(Counterexample(name, 10.0, local, note, attained))
    name = "Hu et al., Theorem 1: clipped non-convex losses, one pass"
    note = f"delta = {DELTA:g}; later steps amplify a record's shift"
    attained = mixture_epsilon(DELTA, *mixture(silos=10, growth=4.0, epsilon=1.0))
    found.append(Counterexample(name, 1.0, gaussian(10 * zcdp_rho(1, DELTA)), note, attained))
    exact = gaussian(baseline_rho(16, 10, 10.0))
    note = f"delta = {DELTA:g}; divides by 16 devices, of which 10 add noise"
    return [*found, Counterexample("Hu et al., DP-SGD baseline", 10.0, exact, note, exact)]
