"""Renyi divergences of released messages, one curve per mechanism, and their conversion to
(epsilon, delta).

Curves add up over rounds and convert by Balle et al. (2020), Theorem 21. dp_accounting provides the
conversion and all curves but one. At fractional orders, its sampled Gaussian ignores the signs of
an alternating series and stops after 1000 terms, so epsilon is too large (22.60 instead of 22.33 at
q=1/8, sigma=5, 20000 rounds) or the order is lost with a warning. `_sampled_gaussian` integrates
these orders directly.
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
    if isinstance(event, dp.PoissonSampledDpEvent) and adjacency == ADD_REMOVE:
        q = event.sampling_probability
        inner = event.event
        if isinstance(inner, dp.GaussianDpEvent):
            grid = np.array(orders)
            whole = np.array([float(order).is_integer() for order in orders])
            curve = np.empty(len(orders))
            curve[whole] = _library_curve(event, adjacency, grid[whole].tolist())
            curve[~whole] = _sampled_gaussian(q, inner.noise_multiplier, grid[~whole])
            return np.asarray(np.maximum(curve, 0) + _ROUNDING * grid / (grid - 1))
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
