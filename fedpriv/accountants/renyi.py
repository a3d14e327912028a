"""Renyi divergences of released messages, one curve per mechanism, and their conversion to
(epsilon, delta).

Curves add up over rounds and convert by Balle et al. (2020), Theorem 21. dp_accounting provides the
conversion and all curves but those of sampled Gaussians:

- Poisson samples. At fractional orders it ignores the signs of an alternating series and stops
  after 1000 terms, so epsilon is too large (22.60 instead of 22.33 at q=1/8, sigma=5, 20000 rounds)
  or the order is lost with a warning. `_sampled_gaussian` integrates these orders directly. Sums of
  whole orders are its own, term by term in arrays.
- Batches of fixed size. It takes differences of differences, which are rounding alone at high
  orders with much noise, and half a second. `_fixed_batches` integrates them, in a fiftieth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.base import unsupported
from fedpriv.accountants.events import ADD_REMOVE, REPLACE, Composition, leaves

if TYPE_CHECKING:
    from dp_accounting import DpEvent

PAPER_ORDERS = (*(1 + x / 10 for x in range(1, 100)), *map(float, range(12, 64)))
"""Orders of the papers' published epsilons: 1.1 to 10.9 by 0.1, and 12 to 63 (Opacus's default)."""

LOW_ORDERS = (1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.08, 1.09)
HIGH_ORDERS = (64.0, 80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 768.0, 1024.0, 2048.0, 4096.0)
ORDERS = (*LOW_ORDERS, *PAPER_ORDERS, *HIGH_ORDERS)
"""The papers' orders, extended for epsilon above 100 and below 0.2."""

_ROUNDING = 1e-13
"""Bound on the rounding error of ln(moment) / order; it keeps tiny curves above zero."""


def convert(orders: tuple[float, ...] | np.ndarray, curve: np.ndarray, delta: float) -> float:
    """The smallest epsilon at `delta` that the Renyi divergences `curve` (shape of `orders`) imply;
    inf if there is none."""
    from dp_accounting.rdp import compute_epsilon

    if not np.isfinite(curve).any():
        return math.inf
    return float(compute_epsilon(list(orders), curve.tolist(), delta)[0])


def rdp_curve(
    composition: Composition, adjacency: str, orders: tuple[float, ...] = ORDERS
) -> np.ndarray:
    """Renyi divergence of `composition` at each of `orders`; all inf if an event is not private."""
    found = leaves(composition)
    if found is None:
        return np.full(len(orders), np.inf)
    return sum(
        (count * event_curve(leaf, adjacency, orders) for leaf, count in found.items()),
        np.zeros(len(orders)),
    )


@lru_cache(maxsize=1024)
def event_curve(event: DpEvent, adjacency: str, orders: tuple[float, ...]) -> np.ndarray:
    """Renyi divergence of one use of a basic mechanism at `orders`. Cached, so callers must not
    change the result.

    Raises ConfigError for an event without a curve under `adjacency`.
    """
    import dp_accounting as dp

    if isinstance(event, dp.GaussianDpEvent) and event.noise_multiplier**2 > 0:
        return np.array(orders) / (2 * event.noise_multiplier**2)  # the library's bits
    inner = getattr(event, "event", None)
    sigma = inner.noise_multiplier if isinstance(inner, dp.GaussianDpEvent) else 0.0
    if isinstance(event, dp.PoissonSampledDpEvent) and adjacency == ADD_REMOVE:
        q, curve = event.sampling_probability, _poisson_samples
    elif isinstance(event, dp.SampledWithoutReplacementDpEvent) and adjacency == REPLACE:
        q, curve = event.sample_size / event.source_dataset_size, _fixed_batches
    else:
        return _library_curve(event, adjacency, orders)
    if sigma > 0 and 0 < q < 1:
        return curve(q, sigma, np.array(orders))
    return _library_curve(event, adjacency, orders)


def _library_curve(event: DpEvent, adjacency: str, orders: Sequence[float]) -> np.ndarray:
    """dp_accounting's own curve of one use of `event`."""
    import dp_accounting as dp

    relation = (
        dp.NeighboringRelation.REPLACE_ONE
        if adjacency == REPLACE
        else dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    )
    accountant = dp.rdp.RdpAccountant(orders, relation)
    try:
        accountant.compose(event)
    except dp.UnsupportedEventError as error:
        hint = (
            "supported are Gaussian, Laplace and zCDP events, Poisson sampling of Gaussians under "
            "add/remove, and fixed-size batches without replacement of Gaussians under replace"
        )
        raise unsupported("rdp", event, adjacency, hint=hint) from error
    return accountant.rdp


def _poisson_samples(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Renyi divergence of the Poisson-sampled Gaussian at any orders > 1."""
    whole = orders == np.floor(orders)
    i = np.arange(orders.max() + 1)
    terms = i * (i - 1) / (2 * sigma**2) + i * math.log(q)
    curve = np.empty(len(orders))
    curve[whole] = _binomial_sums(terms, orders[whole], math.log1p(-q)) / (orders[whole] - 1)
    curve[~whole] = _sampled_gaussian(q, sigma, orders[~whole])
    return np.asarray(np.maximum(curve, 0) + _ROUNDING * orders / (orders - 1))


def _binomial_sums(terms: np.ndarray, orders: np.ndarray, log_rest: float = 0.0) -> np.ndarray:
    """ln sum_i C(order, i) exp(terms[i] + (order - i) log_rest), for whole orders."""
    from scipy.special import gammaln

    factorials = gammaln(np.arange(1, len(terms) + 1))
    sums = []
    for order in orders.astype(int):
        choose = factorials[order] - factorials[: order + 1] - factorials[order::-1]
        rest = np.arange(order, -1, -1) * log_rest
        sums.append(np.logaddexp.reduce(choose + terms[: order + 1] + rest))
    return np.array(sums)


def _sampled_gaussian(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Renyi divergence of the Poisson-sampled Gaussian at any orders > 1 (Mironov, Talwar, Zhang
    2019, eq. 3).

    ln E[(1 - q + q exp(u / sigma - 1 / (2 sigma^2)))^order] / (order - 1) for a standard normal u.
    The integrand is analytic in a strip of half-width pi sigma around the real line, so the
    trapezoid rule is exact to rounding for a step well below that.
    """
    from scipy.special import logsumexp

    step = min(0.05, sigma / 4)
    divergences = []
    # One order at a time: for a small sigma, a grid over all orders would not fit in memory.
    for order in orders:
        u = np.arange(-14, order / sigma + 14, step)
        ratio = np.logaddexp(np.log1p(-q), np.log(q) + u / sigma - 0.5 / sigma**2)
        log_moment = logsumexp(order * ratio - u**2 / 2) + np.log(step / np.sqrt(2 * np.pi))
        divergences.append(log_moment / (order - 1))
    return np.array(divergences)


MAX_DIFFERENCE = 256
"""Highest order of a difference that is computed; its bound takes the place of a higher one."""


def _fixed_batches(q: float, sigma: float, orders: np.ndarray) -> np.ndarray:
    """Renyi divergence of a Gaussian of a batch without replacement at any orders > 1 (Wang, Balle,
    Kasiviswanathan 2019, Thm 27; Cor. 10 interpolates between whole orders).

    q: share of the records in the batch.
    """
    whole = np.unique([np.floor(orders), np.ceil(orders)])
    i = np.arange(whole[-1] + 1)
    terms = math.log(2) + i * (i - 1) / (2 * sigma**2)
    terms[:2] = -math.inf
    if sigma > 0.5:  # else the differences are no less
        even = _even_differences(sigma)
        at = np.arange(2, min(whole[-1], MAX_DIFFERENCE) + 1, dtype=int)
        exact = math.log(4) + (even[at // 2 - 1] + even[(at + 1) // 2 - 1]) / 2
        terms[at] = np.minimum(terms[at], exact)
    moments = np.logaddexp(0.0, _binomial_sums(terms + i * math.log(q), whole))
    rounding = 1e-11  # of the sums' gammaln
    return np.asarray(np.interp(orders, whole, moments) * (1 + rounding) / (orders - 1))


def _even_differences(sigma: float) -> np.ndarray:
    """ln of the differences of orders 2, 4, ..., `MAX_DIFFERENCE` of the Gaussian's moments: of
    E[(exp(u / sigma - 1 / (2 sigma^2)) - 1)^order] for a standard normal u.

    The integrand is nowhere negative. The trapezoid rule is exact to rounding, as for
    `_sampled_gaussian`.
    """
    from scipy.special import logsumexp

    step = 0.1
    u = np.arange(-32, MAX_DIFFERENCE / sigma + 32, step)
    loss = u / sigma - 0.5 / sigma**2
    with np.errstate(divide="ignore"):
        gap = np.maximum(loss, 0) + np.log(-np.expm1(-np.abs(loss)))
    powers = np.outer(np.arange(2, MAX_DIFFERENCE + 1, 2), gap)
    return np.asarray(logsumexp(powers - u**2 / 2, axis=1) + np.log(step / np.sqrt(2 * np.pi)))
