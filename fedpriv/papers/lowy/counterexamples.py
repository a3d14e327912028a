"""Counterexamples to the privacy claims of Lowy, Ghafelebashi, Razaviyayn (Private non-convex FL
without a trusted server).

The setting is the paper's MNIST experiment: n = 1238 records a silo, delta = 1 / n^2, R = 25
rounds, batches of K = floor(n sqrt(24) / (2 sqrt(R))) records, drawn with replacement. Noise is in
units of the clip L.

Attained epsilons use one record whose clipped gradient is L or -L along one direction, or changes
its sign between any two points; all other gradients are zero. A batch holds the record m times, m ~
Binomial(K, 1 / n). So a release is a mixture of Gaussians around m L / K, beside its mirror image.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.zcdp import MomentsClaim, SmallEpsilonClaim
from fedpriv.certificates.sampling import paper_batch
from fedpriv.papers.counterexample import Counterexample

RECORDS = 1238
ROUNDS = 25
DELTA = RECORDS**-2
SIZE = paper_batch(RECORDS, ROUNDS)
TENSORS = 4
"""Number of tensors in the paper's network; each is clipped and noised on its own."""
GRID = 2**21
"""Grid points of a privacy loss."""


def moments_noise(epsilon: float, *, rounds: int = ROUNDS, held: int = 1) -> float:
    """Standard deviation of the published programs' noise on a mean of gradients.

    Its square is 8 held^2 R ln(2 / delta) / (n epsilon)^2. `held` is 2 for differences of
    gradients.
    """
    return math.sqrt(rounds * 2 * (held / RECORDS) ** 2 / MomentsClaim.rho_for(epsilon, DELTA))


def theorem_noise(epsilon: float, counted: float, *, held: int = 1) -> float:
    """The same by Theorem 3.1, with the square 16 held^2 ln(1 / delta) counted / (n epsilon)^2."""
    return math.sqrt(
        counted * 2 * (held / RECORDS) ** 2 / SmallEpsilonClaim.rho_for(epsilon, DELTA)
    )


def multiplier(epsilon: float) -> float:
    """The published programs' noise on a mean gradient, relative to L / K."""
    return moments_noise(epsilon) * SIZE


def spider_gap(
    epsilon: float, *, phase: int, rounds: int = ROUNDS, without_factor: bool = False
) -> float:
    """Distance, in standard deviations, of all releases of Algorithm 3 on full batches.

    epsilon: that the noise is made for; gradients and differences spend all of it each.
    phase: q.
    rounds: R.
    without_factor: the gradients' noise lacks R / q, as in a published program.
    """
    gradients = math.ceil(rounds / phase)
    counted = 1.0 if without_factor else max(rounds / phase, 1.0)
    gradient = 2 / RECORDS / theorem_noise(epsilon, counted)
    difference = 4 / RECORDS / theorem_noise(epsilon, rounds, held=2)
    return math.sqrt(gradients * gradient**2 + (rounds - gradients) * difference**2)


def multiplicity_chances() -> tuple[float, ...]:
    """The chances that a batch holds a record 0, 1, ..., 11 times; larger numbers have chances
    below 1e-12."""
    from scipy.stats import binom

    return tuple(binom.pmf(np.arange(12), SIZE, 1 / RECORDS).tolist())


@lru_cache(maxsize=64)
def attained(
    noise: float, releases: int, chances: tuple[float, ...], delta: float = DELTA
) -> float:
    """A lower bound on the epsilon at `delta` of several releases.

    noise: standard deviation.
    releases: how many; each is the mixture sum_m chances[m] N(m, noise^2) or its mirror image.
    chances: of m = 0, 1, ....

    Losses are rounded down to a grid. A loss wraps around only below -40, which has a chance of
    less than exp(-40), or from the top down.
    """
    from scipy.optimize import brentq
    from scipy.special import logsumexp, ndtr

    m = np.arange(len(chances))[:, None]
    log_chances = np.log(np.array(chances)[:, None])
    far = len(chances) + 12 * noise
    x = np.linspace(-far, far, 200_001)

    def log_density(points: np.ndarray) -> np.ndarray:
        return np.asarray(logsumexp(log_chances - ((points - m) / noise) ** 2 / 2, axis=0))

    loss = log_density(x) - log_density(-x)
    # masses[i] is the probability of (x[i - 1], x[i]].
    masses = np.concatenate([[0.0], np.diff(np.array(chances) @ ndtr((x - m) / noise))])
    floor = np.concatenate([loss[:1], loss[:-1]])  # losses grow with x
    mean = float(masses @ loss)
    spread = math.sqrt(releases * float(masses @ (loss - mean) ** 2))
    reach = max(40.0, releases * mean + 12 * spread)
    width = 2 * reach / GRID
    once = np.bincount(
        np.floor(floor / width).astype(np.int64) % GRID, weights=masses, minlength=GRID
    )
    total = np.fft.irfft(np.fft.rfft(once) ** releases, GRID)
    losses = np.fft.fftfreq(GRID, 1 / GRID) * width

    def exceeds(epsilon: float) -> float:
        above = losses > epsilon
        return float(total[above] @ -np.expm1(epsilon - losses[above])) - delta

    return float(brentq(exceeds, 0, reach - width))


def most_times(releases: int) -> int:
    """The largest number of times that a batch with replacement holds a record in any release,
    except with chance delta / 2."""
    from scipy.stats import binom

    return next(m for m in range(1, SIZE) if releases * binom.sf(m, SIZE, 1 / RECORDS) <= DELTA / 2)


def with_replacement(noise: float, releases: int) -> float:
    """A certificate for means over batches with replacement; noise is relative to L / K."""
    return gaussian_epsilon(2 * most_times(releases) * math.sqrt(releases) / noise, DELTA / 2)


def steps_with_replacement(noise: float, rounds: int) -> float:
    """A certificate for Local SGD with noise in every step, relative to L; it holds for any
    post-processing of the steps."""
    return gaussian_epsilon(2 * math.sqrt(most_times(rounds) * rounds) / noise, DELTA / 2)


def clip_after_division(noise: float) -> float:
    """An attained epsilon if gradients are divided by K before they are clipped to L, with noise
    for L / K.

    A record of gradient K L moves a mean by L. One test attains the epsilon: is any message nearer
    to L than to 0?
    """
    from scipy.stats import norm

    shift = SIZE / noise
    never_drawn = multiplicity_chances()[0] ** ROUNDS
    hits = (1 - never_drawn) * norm.cdf(6) - DELTA
    false_alarms = math.log(ROUNDS) + norm.logsf(max(0.0, shift - 6))
    return float(math.log(hits) - false_alarms)


def counterexamples() -> list[Counterexample]:
    """Theorem 3.1, and the noise of the published programs."""
    found: list[Counterexample] = []

    def add(name: str, claimed: float, certified: float, attained: float, why: str) -> None:
        name = f"Lowy et al., {name}"
        note = f"delta = {DELTA:.2g}; {why}"
        found.append(Counterexample(name, claimed, certified, note, attained))

    chances = multiplicity_chances()
    for phase, epsilon in ((5, 12.0), (5, 18.0), (25, 18.0)):
        exact = gaussian_epsilon(spider_gap(epsilon, phase=phase), DELTA)
        name = f"SPIDER, Theorem 3.1: q = {phase}, R = {ROUNDS}, epsilon {epsilon:g}"
        add(name, epsilon, exact, exact, "gradients and differences spend all of it each")
    exact = gaussian_epsilon(spider_gap(1.0, phase=5, without_factor=True), DELTA)
    add("SPIDER, program: q = 5", 1.0, exact, exact, "the gradients' noise lacks R / q")
    for name, claimed, tensors, releases, why in (
        ("MB-SGD, epsilon 12", 12.0, 1, ROUNDS, "beyond the premise of the sampling theorem"),
        ("MB-SGD, epsilon 18", 18.0, 1, ROUNDS, "beyond the premise of the sampling theorem"),
        ("SPIDER alternate", 0.75, 1, 2 * ROUNDS - 1, "2 R - 1 releases, each with noise for R"),
        ("clips per tensor", 0.75, TENSORS, ROUNDS, f"{TENSORS} tensors move by 2L, not L"),
    ):
        noise = multiplier(claimed) / math.sqrt(tensors)
        certified = with_replacement(noise, releases)
        add(name, claimed, certified, attained(noise, releases, chances), why)
    step = moments_noise(0.75)
    # The sum of K steps has sqrt(K) times one step's noise. A record on which nothing else depends
    # meets that much.
    real = attained(step * math.sqrt(SIZE), ROUNDS, chances)
    certified = steps_with_replacement(step, ROUNDS)
    add("Local SGD, MNIST program", 0.75, certified, real, "the noise lacks the factor K")
    noise = multiplier(1.0)
    whole = gaussian_epsilon(2 * SIZE * math.sqrt(ROUNDS) / noise, DELTA)
    why = "divides by K before it clips to L"
    add("MNIST program, clips", 1.0, whole, clip_after_division(noise), why)
    why = "two runs with one file of noise: their difference has none"
    add("noise files", 2.0, math.inf, math.inf, why)
    return found
