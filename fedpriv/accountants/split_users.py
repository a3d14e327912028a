"""Groups whose records are in several scopes: the worst way to split k records over silos.

`group` covers groups whose records are all in one silo. If silos differ, no theorem says which
split k = k_1 + k_2 + ... costs most, so this module computes the worst one. For a group of k_s
records, each release of silo s is dominated by the mixture of Gaussians at 0..k_s with
Binomial(k_s, q) weights (`group_event`), in both directions and so in every Renyi divergence.
Releases of different silos compose: at order a, a split has divergence

    sum over silos s of T_s R_s(k_s; a),

and the largest of these sums bounds all splits. Dynamic programming over silos finds it exactly,
for each order and direction. The conversion then gives an epsilon for every split of the group.

That is for silos with noise of their own. An observer of sums sees one release, in which one noise
hides the records of all silos: a record in each of two silos may move it twice as far as one does.
The noise is a sum of independent parts, of which silo s gets the share k_s / k of the variance. The
release is a function of the silos' releases under their parts, and these compose. Without sampling,
every split then costs at most what all k records in the costliest silo cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import Composition, leaves
from fedpriv.accountants.group import sampled_gaussian
from fedpriv.accountants.renyi import convert

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ORDERS = tuple((1 + np.geomspace(0.012, 63, 44)).tolist())
"""From 1.012, for epsilons of thousands, to 64."""

_ROUNDING = 1e-13  # bound on the rounding error of ln(moment) / order, as in `renyi`
_WIDEST = 300.0
"""Farthest point of an integral. Orders that need more are left out, which can only raise
epsilon."""


def split_epsilon(
    scopes: Sequence[Composition],
    group_size: int,
    delta: float,
    *,
    everywhere: Composition = (),
    one_noise: bool = False,
) -> float:
    """Epsilon at `delta` of a group of at most `group_size` records in more than one scope, under
    add/remove of the group, both directions; inf if a release is not private.

    scopes: releases of each scope.
    everywhere: releases to which the records of all scopes contribute.
    one_noise: whether releases of different scopes may be one, under the noise of each.

    Raises ConfigError for an event without a group bound.
    """
    worst = split_divergences(
        scopes, group_size, ORDERS, everywhere=everywhere, one_noise=one_noise
    )
    known = np.isfinite(worst).all(axis=0)
    return max(convert(np.array(ORDERS)[known], direction[known], delta) for direction in worst)


def split_divergences(
    scopes: Sequence[Composition],
    group_size: int,
    orders: tuple[float, ...],
    *,
    everywhere: Composition = (),
    one_noise: bool = False,
) -> np.ndarray:
    """Renyi divergences (2, orders) of a group as in `split_epsilon`, in both directions; inf if a
    release is not private."""
    total = np.zeros((group_size + 1, 2, len(orders)))
    for composition in scopes:
        curves = _curves(composition, group_size, orders, one_noise=one_noise)
        total = _worst_sum(total, curves[:group_size])
    worst: np.ndarray = total[-1] + _curves(everywhere, group_size, orders)[-1]
    return worst


def _curves(
    composition: Composition, most: int, orders: tuple[float, ...], *, one_noise: bool = False
) -> np.ndarray:
    """Renyi divergences (most + 1, 2, orders) of `composition` for groups of 0 .. `most` records;
    inf if it is not private.

    one_noise: whether m records face the part m / most of the noise variance.
    """
    divergences = _parts_divergences if one_noise else group_divergences
    found = leaves(composition)
    if found is None:
        return np.full((most + 1, 2, len(orders)), np.inf)
    nothing = np.zeros((most + 1, 2, len(orders)))
    parts = (count * divergences(event, most, orders) for event, count in found.items())
    return sum(parts, nothing)


def _worst_sum(total: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """The largest sums for at most 0, 1, .. records, the rows of `total`, if some of them are in
    one more scope, with `curves`."""
    worst = total.copy()
    for moved in range(1, len(curves)):
        worst[moved:] = np.maximum(worst[moved:], total[:-moved] + curves[moved])
    return worst


@lru_cache(maxsize=256)
def group_divergences(event: DpEvent, most: int, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Renyi divergences (most + 1, 2, orders) of one release for groups of 0 .. `most`: of the
    output with the group from that without, and the reverse. Cached, so callers must not change
    the result."""
    q, sigma = sampled_gaussian(event, most)
    sizes = np.arange(most + 1)[:, None]
    grid = np.array(orders)
    if q == 1:
        return np.repeat((grid * (sizes / sigma) ** 2 / 2)[:, None, :], 2, axis=1)
    # Integrands are analytic within pi sigma of the real line (all roots of the mixture's
    # polynomial in exp(u / sigma) are negative), so the trapezoid rule is exact to rounding.
    step = min(0.1, sigma / 16)
    fits = grid * most / sigma <= _WIDEST
    # The integrands' farthest peaks are here and, in the other direction, at -q times this.
    farthest = float(grid[fits].max(initial=1.0)) * most / sigma
    u = np.arange(-q * farthest - 14, farthest + 14, step)
    ratios = _log_ratios(q, sigma, most, u)
    curves = np.full((most + 1, 2, len(orders)), np.inf)
    weight = math.log(step / math.sqrt(2 * math.pi)) - u**2 / 2
    for column in np.flatnonzero(fits):
        a = grid[column]
        for direction, power in enumerate((a, 1 - a)):
            exponent = power * ratios + weight
            top = exponent.max(axis=1, keepdims=True)
            moments = top[:, 0] + np.log(np.exp(exponent - top).sum(axis=1))
            curves[:, direction, column] = (np.maximum(moments, 0) + _ROUNDING * a) / (a - 1)
    curves[0] = 0
    return curves


@lru_cache(maxsize=256)
def _parts_divergences(event: DpEvent, most: int, orders: tuple[float, ...]) -> np.ndarray:
    """The same, where a group of m faces the part m / `most` of the noise variance."""
    import dp_accounting as dp

    q, sigma = sampled_gaussian(event, most)
    curves = np.zeros((most + 1, 2, len(orders)))
    for m in range(1, most + 1):
        part = dp.GaussianDpEvent(sigma * math.sqrt(m / most))
        own = part if q == 1 else dp.PoissonSampledDpEvent(q, part)
        curves[m] = group_divergences(own, m, orders)[m]
    return curves


def _log_ratios(q: float, sigma: float, most: int, u: np.ndarray) -> np.ndarray:
    """Logarithm of the mixture's density over that of standard normal noise at `u`, (most + 1,
    points), for groups of 0 .. `most`."""
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
