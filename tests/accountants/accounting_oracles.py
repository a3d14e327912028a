"""Second ways to every number, written from the definitions and sharing no code with fedpriv or
dp_accounting."""

from __future__ import annotations

import math

import numpy as np
from scipy import fft, optimize, special, stats


def gaussian_delta(epsilon: float, mean_gap: float) -> float:
    """Exact delta of two unit-variance Gaussians `mean_gap` apart."""
    above = stats.norm.cdf(mean_gap / 2 - epsilon / mean_gap)
    return float(above - math.exp(epsilon + stats.norm.logcdf(-mean_gap / 2 - epsilon / mean_gap)))


def gaussian_epsilon(mean_gap: float, delta: float = 1e-5) -> float:
    """Exact epsilon of the same pair, by root finding."""
    return optimize.brentq(
        lambda e: math.log(gaussian_delta(e, mean_gap) / delta), 0, mean_gap**2 / 2 + 6 * mean_gap
    )


def integer_rdp(q: float, sigma: float, order: int) -> float:
    """Renyi divergence of the Poisson-sampled Gaussian at an integer order, by the binomial sum."""
    k = np.arange(order + 1)
    log_choose = (
        special.gammaln(order + 1) - special.gammaln(k + 1) - special.gammaln(order - k + 1)
    )
    terms = (
        log_choose
        + special.xlog1py(order - k, -q)
        + special.xlogy(k, q)
        + (k**2 - k) / (2 * sigma**2)
    )
    return float(special.logsumexp(terms) / (order - 1))


def balle_epsilon(divergence: float, order: float, delta: float = 1e-5) -> float:
    """Conversion of one Renyi divergence to epsilon."""
    return divergence + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def integer_epsilon(q: float, sigma: float, rounds: int) -> float:
    """Epsilon over integer orders alone: an upper bound, a little above the one over all orders."""
    return min(balle_epsilon(rounds * integer_rdp(q, sigma, a), a) for a in range(2, 600))


def sampled_epsilon(
    q: float, sigma: float, rounds: int, step: float, group: int = 1, delta: float = 1e-5
) -> float:
    """Epsilon of `rounds` releases, each Binomial(group, q) sensitivities away or not, by one FFT
    of the privacy loss.

    The loss is put on a grid so that its mean is kept: an estimate from neither side, unlike
    connect-the-dots.
    """
    c = np.arange(group + 1)
    log_share = stats.binom.logpmf(c, group, q)
    far = np.max(c + sigma * np.sqrt(np.maximum(0, 2 * (55 + log_share))))
    n, worst = 2**19, 0.0
    for x, sign in (
        (np.linspace(-11 * sigma, max(far, 11 * sigma), 60_001), 1),
        (np.linspace(-11, 11, 60_001) * sigma, -1),
    ):
        log_ratio = np.full(x.shape, -np.inf)
        for shift, share in zip(c, log_share):
            log_ratio = np.logaddexp(log_ratio, share + (x * shift - shift**2 / 2) / sigma**2)
        weight = np.exp(-(x**2) / (2 * sigma**2) + (log_ratio if sign == 1 else 0))
        weight /= weight.sum()
        loss = sign * log_ratio
        cell = np.floor(loss / step).astype(int)
        part = loss / step - cell
        p = np.bincount(cell % n, weight * (1 - part), n) + np.bincount(
            (cell + 1) % n, weight * part, n
        )
        composed = fft.ifft(np.exp(rounds * np.log(fft.fft(p)))).real
        mean = rounds * (weight @ loss)
        losses = np.arange(n) * step
        losses += np.round((mean - losses) / (n * step)) * (
            n * step
        )  # the copy of each cell nearest to the mean
        order = np.argsort(losses)
        losses, composed = losses[order], composed[order]

        def excess(
            epsilon: float, losses: np.ndarray = losses, composed: np.ndarray = composed
        ) -> float:
            above = losses > epsilon
            return float(-np.expm1(epsilon - losses[above]) @ composed[above]) - delta

        if excess(0.0) > 0:
            worst = max(worst, optimize.bisect(excess, 0, losses[-1], xtol=1e-7))
    return worst
