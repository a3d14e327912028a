"""Where the privacy claims of Lowy, Ghafelebashi, Razaviyayn (Private non-convex FL without a
trusted server) fail.

The setting is that of the paper's MNIST experiment: n = 1238 records a silo, delta = 1 / n^2, R =
25 rounds, batches of K = floor(n sqrt(24) / (2 sqrt(R))) records, drawn with replacement. Noise is
in units of the clip L.

What is attained: one record's clipped gradient is L or -L along one direction, or turns round
between any two points where it is asked for; all other gradients are zero. A batch holds the record
m times, m ~ Binomial(K, 1 / n), so a release is a mixture of Gaussians around m L / K, to be told
from its mirror image.
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
"""Of the paper's network, each clipped and noised on its own."""
CELLS = 2**21
"""Grid points of a privacy loss."""


def moments_noise(epsilon: float, *, rounds: int = ROUNDS, held: int = 1) -> float:
    """Standard deviation of the programs' noise on a mean, 8 held^2 R ln(2 / delta) / (n epsilon)^2
    squared; `held` is 2 for differences of gradients."""
    return math.sqrt(rounds * 2 * (held / RECORDS) ** 2 / MomentsClaim.rho_for(epsilon, DELTA))


def theorem_noise(epsilon: float, counted: float, *, held: int = 1) -> float:
    """The same of Theorem 3.1: 16 held^2 ln(1 / delta) counted / (n epsilon)^2, squared."""
    return math.sqrt(
        counted * 2 * (held / RECORDS) ** 2 / SmallEpsilonClaim.rho_for(epsilon, DELTA)
    )


def multiplier(epsilon: float) -> float:
    """The programs' noise on a mean gradient, relative to L / K."""
    return moments_noise(epsilon) * SIZE


def spider_gap(
    epsilon: float, *, phase: int, rounds: int = ROUNDS, without_factor: bool = False
) -> float:
    """Distance in standard deviations of all releases of Algorithm 3 on whole batches, whose two
    kinds have the whole budget each.

    without_factor: the gradients' noise lacks R / q, as in a published program.
    """
    gradients = math.ceil(rounds / phase)
    counted = 1.0 if without_factor else max(rounds / phase, 1.0)
    gradient = 2 / RECORDS / theorem_noise(epsilon, counted)
    difference = 4 / RECORDS / theorem_noise(epsilon, rounds, held=2)
    return math.sqrt(gradients * gradient**2 + (rounds - gradients) * difference**2)


def doubled_budget_limit(delta: float) -> float:
    """The largest epsilon that twice the paper's budget, epsilon^2 / (4 ln(1 / delta)) of zCDP,
    still keeps."""
    from scipy.optimize import brentq

    def beyond(epsilon: float) -> float:
        return (
            gaussian_epsilon(2 * math.sqrt(SmallEpsilonClaim.rho_for(epsilon, delta)), delta)
            - epsilon
        )

    return float(brentq(beyond, 1, 2 * math.log(1 / delta)))


def drawn() -> tuple[float, ...]:
    """The chances that a batch holds a record 0, 1, 2, ... times; from 12 on they are below 1e-12,
    and left out."""
    from scipy.stats import binom

    return tuple(binom.pmf(np.arange(12), SIZE, 1 / RECORDS).tolist())


@lru_cache(maxsize=64)
def attained(
    noise: float, releases: int, chances: tuple[float, ...], delta: float = DELTA
) -> float:
    """An epsilon at `delta` that so many releases really have, each the sum over m of chances[m]
    N(m, noise^2) or its mirror image.

    A lower bound: losses are rounded down to a grid. They wrap around only where they are below
    -40, which has a chance of less than exp(-40), or from the top down.
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
    cells = np.concatenate(
        [[0.0], np.diff(np.array(chances) @ ndtr((x - m) / noise))]
    )  # P of (x[i - 1], x[i]]
    floor = np.concatenate([loss[:1], loss[:-1]])  # losses grow with x
    mean = float(cells @ loss)
    spread = math.sqrt(releases * float(cells @ (loss - mean) ** 2))
    reach = max(40.0, releases * mean + 12 * spread)
    width = 2 * reach / CELLS
    once = np.bincount(
        np.floor(floor / width).astype(np.int64) % CELLS, weights=cells, minlength=CELLS
    )
    total = np.fft.irfft(np.fft.rfft(once) ** releases, CELLS)
    losses = np.fft.fftfreq(CELLS, 1 / CELLS) * width

    def exceeds(epsilon: float) -> float:
        above = losses > epsilon
        return float(total[above] @ -np.expm1(epsilon - losses[above])) - delta

    return float(brentq(exceeds, 0, reach - width))


def most_times(releases: int) -> int:
    """How often a batch with replacement holds a record at most, in any of the releases, but for
    half of delta."""
    from scipy.stats import binom

    return next(m for m in range(1, SIZE) if releases * binom.sf(m, SIZE, 1 / RECORDS) <= DELTA / 2)


def with_replacement(noise: float, releases: int) -> float:
    """A certificate of means over batches with replacement, under Gaussian noise relative to L /
    K.
    """
    return gaussian_epsilon(2 * most_times(releases) * math.sqrt(releases) / noise, DELTA / 2)


def steps_with_replacement(noise: float, rounds: int) -> float:
    """The same of Local SGD with noise in every step, relative to L: whatever training makes of the
    steps."""
    return gaussian_epsilon(2 * math.sqrt(most_times(rounds) * rounds) / noise, DELTA / 2)


def clip_after_division(noise: float) -> float:
    """An epsilon that is attained where gradients are divided by K before they are clipped to L,
    with noise for L / K.

    A record of gradient K L moves a mean by L. By one test: does any message lie nearer to L than
    to nothing?
    """
    from scipy.stats import norm

    shift = SIZE / noise
    seldom = drawn()[0] ** ROUNDS
    least = max(0.0, shift - 6)
    hits = (1 - seldom) * norm.cdf(6) - DELTA
    misses = math.log(ROUNDS) + norm.logsf(least)
    return float(math.log(hits) - misses)


def counterexamples() -> list[Counterexample]:
    """Theorem 3.1, and the noise of the experiments as the programs take it."""

    def row(
        name: str, claimed: float, certified: float, attained: float, why: str
    ) -> Counterexample:
        return Counterexample(
            f"Lowy et al., {name}", claimed, certified, f"delta = {DELTA:.2g}; {why}", attained
        )

    found = []
    chances = drawn()
    for phase, epsilon in ((5, 12.0), (5, 18.0), (25, 18.0)):
        exact = gaussian_epsilon(spider_gap(epsilon, phase=phase), DELTA)
        name = f"SPIDER, Theorem 3.1: q = {phase}, R = {ROUNDS}, epsilon {epsilon:g}"
        found.append(
            row(name, epsilon, exact, exact, "gradients and differences spend all of it each")
        )
    exact = gaussian_epsilon(spider_gap(1.0, phase=5, without_factor=True), DELTA)
    found.append(
        row("SPIDER, program: q = 5", 1.0, exact, exact, "the gradients' noise lacks R / q")
    )
    for name, claimed, tensors, releases, why in (
        ("MB-SGD, epsilon 12", 12.0, 1, ROUNDS, "beyond the premise of the sampling theorem"),
        ("MB-SGD, epsilon 18", 18.0, 1, ROUNDS, "beyond the premise of the sampling theorem"),
        ("SPIDER alternate", 0.75, 1, 2 * ROUNDS - 1, "2 R - 1 releases, each with noise for R"),
        ("clips per tensor", 0.75, TENSORS, ROUNDS, f"{TENSORS} tensors move by 2L, not L"),
    ):
        noise = multiplier(claimed) / math.sqrt(tensors)
        found.append(
            row(
                name,
                claimed,
                with_replacement(noise, releases),
                attained(noise, releases, chances),
                why,
            )
        )
    # The sum of K steps has sqrt(K) times one step's noise, so that much for a record that nothing
    # else depends on.
    step = moments_noise(0.75)
    bounds = steps_with_replacement(step, ROUNDS), attained(step * math.sqrt(SIZE), ROUNDS, chances)
    found.append(row("Local SGD, MNIST program", 0.75, *bounds, "the noise lacks the factor K"))
    noise = multiplier(1.0)
    whole = gaussian_epsilon(2 * SIZE * math.sqrt(ROUNDS) / noise, DELTA)
    found.append(
        row(
            "MNIST program, clips",
            1.0,
            whole,
            clip_after_division(noise),
            "divides by K before it clips to L",
        )
    )
    why = "two runs with one file of noise: their difference has none"
    return [*found, row("noise files", 2.0, math.inf, math.inf, why)]
