"""Poisson sampling before any mechanism with a known Renyi curve.

Zhu, Wang: Poisson subsampled Renyi differential privacy (ICML 2019), Theorem 5, add/remove
adjacency. For an integer order a and a mechanism with divergences R(2), ..., R(a), sampling at rate
q gives at most

    1 / (a - 1) * ln( (1-q)^(a-1) (1 - q + a q) + C(a,2) q^2 (1-q)^(a-2) e^R(2)
                      + 3 * sum over l = 3 .. a of C(a,l) q^l (1-q)^(a-l) e^((l-1) R(l)) ).

For Gaussian noise the factor 3 is not needed, and `renyi` leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np


def sampled_curve(
    q: float, curve: Callable[[np.ndarray], np.ndarray], orders: Sequence[float]
) -> np.ndarray:
    """Renyi divergence at `orders` of a mechanism with divergences `curve(orders)` after sampling
    at rate 0 < q < 1.

    Sampling never costs privacy, so the mechanism's own divergence is a bound too. At fractional
    orders it is the only one.
    """
    alone = np.asarray(curve(np.asarray(orders, float)), float)
    bounds = [
        _bound(q, curve, int(order)) if float(order).is_integer() else np.inf for order in orders
    ]
    return np.asarray(np.minimum(alone, bounds))


def _bound(q: float, curve: Callable[[np.ndarray], np.ndarray], order: int) -> float:
    from scipy.special import gammaln, logsumexp

    few = (order - 1) * np.log1p(-q) + np.log1p((order - 1) * q)
    hits = np.arange(2, order + 1)
    ways = gammaln(order + 1) - gammaln(hits + 1) - gammaln(order - hits + 1)
    terms = (
        ways
        + hits * np.log(q)
        + (order - hits) * np.log1p(-q)
        + (hits - 1) * curve(hits.astype(float))
    )
    terms += np.where(hits > 2, np.log(3), 0)
    return float(logsumexp([few, *terms]) / (order - 1))
