"""Groups whose records lie in several scopes: the worst way of splitting k records over silos.

`group` answers for a group whose records all lie in one silo. Where silos differ, no theorem says
which of all allocations k = k_1 + k_2 + ... costs most, so the worst one is computed. Silo s shows
a group of k_s records its releases of the mixture of Gaussians at 0..k_s with Binomial(k_s, q)
weights (`group_event`), which dominates in both directions and therefore in every Renyi divergence.
Releases of different silos compose: at order a an allocation has divergence

    sum over silos s of T_s R_s(k_s; a),

and the largest of these sums over all allocations, found exactly by dynamic programming over silos,
bounds every one of them. Orders and directions apart, then converted: an epsilon for whatever split
the group has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import Runs, leaves
from fedpriv.accountants.group import sampled_gaussian
from fedpriv.accountants.renyi import convert

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ORDERS = tuple((1 + np.geomspace(0.012, 63, 44)).tolist())
"""From 1.012, for epsilons of thousands, to 64."""

_ROUNDING = 1e-13  # bound on the rounding error of ln(moment) / order, as in `renyi`
_WIDEST = 300.0
"""Farthest point of an integral; orders that need more are left out, which never makes epsilon too
small."""


def split_epsilon(
    scopes: Sequence[Runs], group_size: int, delta: float, *, everywhere: Runs = ()
) -> float:
    """Epsilon at `delta` of a group of at most `group_size` records that no single scope holds all
    of.

    scopes: what a record of each of them meets.
    everywhere: releases that all records meet. Under add/remove of the group, both directions; inf
        when a release is not private. Raises ConfigError for an event without a group bound.
    """
    total = np.zeros((group_size + 1, 2, len(ORDERS)))
    for runs in scopes:
        if (curves := _curves(runs, group_size)) is None:
            return math.inf
        total = _worst_sum(total, curves[:group_size])
    if (common := _curves(everywhere, group_size)) is None:
        return math.inf
    worst = total[-1] + common[-1]
    known = np.isfinite(worst).all(axis=0)
    return max(convert(np.array(ORDERS)[known], direction[known], delta) for direction in worst)


def _curves(runs: Runs, most: int) -> np.ndarray | None:
    """Renyi divergences (most + 1, 2, orders) of `runs` for groups of 0 .. `most` records; None if
    not private."""
    found = leaves(runs)
    if found is None:
        return None
    nothing = np.zeros((most + 1, 2, len(ORDERS)))
    return sum((count * _divergences(event, most) for event, count in found.items()), nothing)


def _worst_sum(total: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """For at most 0, 1, .. records, rows of `total`, the largest sum when any of them move to one
    more scope of `curves`."""
    worst = total.copy()
    for moved in range(1, len(curves)):
        worst[moved:] = np.maximum(worst[moved:], total[:-moved] + curves[moved])
    return worst


@lru_cache(maxsize=256)
def _divergences(event: DpEvent, most: int) -> np.ndarray:
    """Renyi divergences (most + 1, 2, orders) of one release for groups of 0 .. `most`: of its
    output with the group from that without, and the reverse. Kept for the next call, so not to be
    changed."""
    q, sigma = sampled_gaussian(event, most)
    sizes = np.arange(most + 1)[:, None]
    orders = np.array(ORDERS)
    if q == 1:
        return np.repeat((orders * (sizes / sigma) ** 2 / 2)[:, None, :], 2, axis=1)
    # Integrands are analytic within pi sigma of the real line (all roots of the mixture's
    # polynomial in exp(u / sigma) are negative), so the trapezoid rule is exact to rounding.
    step = min(0.1, sigma / 16)
    fits = orders * most / sigma <= _WIDEST
    farthest = (
        float(orders[fits].max(initial=1.0)) * most / sigma
    )  # of the integrands' peaks: here, and at
    u = np.arange(-q * farthest - 14, farthest + 14, step)  # -q times that in the other direction
    ratios = _log_ratios(q, sigma, most, u)
    curves = np.full((most + 1, 2, len(orders)), np.inf)
    weight = math.log(step / math.sqrt(2 * math.pi)) - u**2 / 2
    for column in np.flatnonzero(fits):
        a = orders[column]
        for direction, power in enumerate((a, 1 - a)):
            exponent = power * ratios + weight
            top = exponent.max(axis=1, keepdims=True)
            moments = top[:, 0] + np.log(np.exp(exponent - top).sum(axis=1))
            curves[:, direction, column] = (np.maximum(moments, 0) + _ROUNDING * a) / (a - 1)
    curves[0] = 0
    return curves


def _log_ratios(q: float, sigma: float, most: int, u: np.ndarray) -> np.ndarray:
    """Logarithm of the mixture's density over that of standard normal noise at `u`, for groups of 0
    .. `most`."""
    from scipy.special import logsumexp
    from scipy.stats import binom

    m = np.arange(most + 1)[:, None]
    shifts = m * u / sigma - (m / sigma) ** 2 / 2
    return np.array(
        [
            logsumexp(shifts[: k + 1] + binom.logpmf(m[: k + 1], k, q), axis=0)
            for k in range(most + 1)
        ]
    )
