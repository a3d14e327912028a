"""Losses on which the privacy claims of Hu, Guo, Gong (CDP federated learning) are false, as
systems that run.

Symbols as in `fedpriv.algorithms.cdp_fedavg`: r devices, m records each, tau steps on batches of
gamma, noise sigma, clip G; the step size is 1 and the model is one number that starts at 0. All but
one device lose their old noise: their records have loss theta^2 / 2, so that a step of size 1 lands
on the last noise alone.

A  The last device's records have linear losses, one of them of slope G or -G. Full batches, so tau
passes. Its noise of
   tau steps stays, and so do tau shifts of 2G / m, under a variance of (tau + r - 1) sigma^2.
   Theorem 1 counts on r tau sigma^2. All losses are convex and smooth.
B  One pass of two batches. One record of the last device has a linear loss of slope G or -G, the
others have loss
   -a theta^2 / 2, whose gradients stay below G: if the record comes first, the second step
   multiplies its shift by 1 + a. Theorem 1 takes the shift of the whole model for one record's 2G /
   gamma.
"""

from __future__ import annotations

import math

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.zcdp import zcdp_epsilon, zcdp_rho
from fedpriv.papers.counterexample import Counterexample

DELTA = 1e-4


def paper_sigma(
    steps: int, silos: int, *, records: int, size: int, epsilon: float, taken: float = 1.0
) -> float:
    """Noise over G at which Theorem 1 gives `epsilon` after `taken` rounds."""
    return math.sqrt(2 * taken * steps / (silos * records * size * zcdp_rho(epsilon, DELTA)))


def convex_gap(steps: int, silos: int, epsilon: float) -> float:
    """System A with the noise for `epsilon`: the distance of the two sums' means over their
    standard deviation."""
    sigma = paper_sigma(steps, silos, records=1, size=1, epsilon=epsilon)
    return 2 * steps / (sigma * math.sqrt(steps + silos - 1))


def run_convex(
    steps: int,
    silos: int,
    epsilon: float,
    *,
    copies: int,
    rng: np.random.Generator,
    records: int = 1000,
) -> tuple[np.ndarray, np.ndarray]:
    """System A, `copies` times with slope G = 1 and with -1: the sums of the devices' models,
    (copies,) each."""
    sigma = paper_sigma(steps, silos, records=records, size=records, epsilon=epsilon)
    sums = []
    for slope in (1.0, -1.0):
        models = np.zeros((silos, copies))
        for _ in range(steps):
            gradients = np.clip(
                models, -1, 1
            )  # of theta^2 / 2, the same for all records of a batch
            gradients[0] = slope / records
            models -= gradients + sigma * rng.standard_normal(models.shape)
        sums.append(models.sum(axis=0))
    return sums[0], sums[1]


def mixture(
    silos: int, growth: float, epsilon: float, *, size: int = 1000
) -> tuple[np.ndarray, np.ndarray]:
    """System B with a = `growth`: means (2,) and standard deviations (2,) of the sum, in units of
    G, for the record in the first and in the second batch, which are equally likely; with slope -G
    the means change their signs."""
    sigma = paper_sigma(2, silos, records=2 * size, size=size, epsilon=epsilon)
    amplified = np.array(
        [1 + growth, 1 + growth * (size - 1) / size]
    )  # the record's own batch has one fewer
    means = -np.array([amplified[0], 1.0]) / size
    return means, sigma * np.sqrt(amplified**2 + silos)


def mixture_delta(epsilon: float, means: np.ndarray, stds: np.ndarray) -> float:
    """delta at `epsilon` of telling the mixture of two equally likely Gaussians from its mirror
    image."""
    y, p, q = _densities(means, stds)
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum() * (y[1] - y[0]))


def mixture_epsilon(delta: float, means: np.ndarray, stds: np.ndarray) -> float:
    """Epsilon at `delta` of the same."""
    from scipy.optimize import brentq

    return float(
        brentq(lambda epsilon: mixture_delta(epsilon, means, stds) - delta, 0, 100, xtol=1e-10)
    )


def _densities(means: np.ndarray, stds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from scipy.stats import norm

    reach = np.abs(means).max() + 12 * stds.max()
    y = np.linspace(-reach, reach, 200_001)
    p = 0.5 * sum(norm.pdf(y, mean, std) for mean, std in zip(means, stds))
    return y, p, p[::-1]


def run_clipped(
    silos: int,
    growth: float,
    epsilon: float,
    *,
    slope: float,
    copies: int,
    rng: np.random.Generator,
    size: int = 1000,
) -> np.ndarray:
    """System B, `copies` times: the sums of the devices' models, (copies,).

    slope: 1 or -1, in units of G.
    """
    sigma = paper_sigma(2, silos, records=2 * size, size=size, epsilon=epsilon)
    models = np.zeros((silos, copies))
    first = rng.random(copies) < 0.5
    for own in (first, ~first):  # in which copies the batch holds the record
        gradients = np.clip(models, -1, 1)
        others = np.clip(-growth * models[0], -1, 1)
        gradients[0] = np.where(own, ((size - 1) * others + slope) / size, others)
        models -= gradients + sigma * rng.standard_normal(models.shape)
    return np.asarray(models.sum(axis=0))


def baseline_rho(silos: int, participants: int, epsilon: float) -> float:
    """DP-SGD with the noise for which its claim, which divides by all `silos`, is `epsilon`: the
    rho of a linear loss, of which `participants` devices add noise."""
    return zcdp_rho(epsilon, DELTA) * silos / participants


def counterexamples() -> list[Counterexample]:
    """All of them, with 10 of 16 devices where nothing else is said."""
    found = []
    for steps, silos in ((10, 10), (40, 10), (10, 100)):
        name = f"Hu et al., Theorem 1: convex losses, tau = {steps}, r = {silos}"
        local = gaussian_epsilon(math.sqrt(2 * silos * zcdp_rho(10, DELTA)), DELTA)
        note = f"delta = {DELTA:g}; training contracts the other devices' noise"
        attained = gaussian_epsilon(convex_gap(steps, silos, 10.0), DELTA)
        found.append(Counterexample(name, 10.0, local, note, attained))
    name = "Hu et al., Theorem 1: clipped non-convex losses, one pass"
    note = "later steps amplify a record's shift"
    local = gaussian_epsilon(math.sqrt(2 * 10 * zcdp_rho(1, DELTA)), DELTA)
    attained = mixture_epsilon(DELTA, *mixture(silos=10, growth=4.0, epsilon=1.0))
    found.append(Counterexample(name, 1.0, local, f"delta = {DELTA:g}; {note}", attained))
    exact = gaussian_epsilon(math.sqrt(2 * baseline_rho(16, 10, 10.0)), DELTA)
    note = f"delta = {DELTA:g}; divides by 16 devices, of which 10 add noise"
    return [*found, Counterexample("Hu et al., DP-SGD baseline", 10.0, exact, note, exact)]


def baseline_by_the_papers_conversion(
    silos: int = 16, participants: int = 10, epsilon: float = 10.0
) -> float:
    """What the baseline's claim becomes when it is divided by the devices that add noise, converted
    as in the paper."""
    return zcdp_epsilon(baseline_rho(silos, participants, epsilon), DELTA)
