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

ORDERS = (
    *(1 + np.geomspace(0.012, 63, 44)).tolist(),
    *(80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0),
)
"""From 1.012, for epsilons of thousands, to 1024, for epsilons below 0.1."""

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
    share = 1 / group_size if one_noise else 0.0
    for composition in scopes:
        total = _worst_sum(total, _curves(composition, range(group_size), orders, share))
    [common] = _curves(everywhere, (group_size,), orders)
    worst: np.ndarray = total[-1] + common
    return worst


def _curves(
    composition: Composition, sizes: Sequence[int], orders: tuple[float, ...], share: float = 0.0
) -> np.ndarray:
    """Renyi divergences (sizes, 2, orders) of `composition` for groups of these sizes; inf if it is
    not private.

    share: part of the noise variance that each record faces; 0: a group faces the whole noise.
    """
    found = leaves(composition)
    if found is None:
        return np.full((len(sizes), 2, len(orders)), np.inf)
    curves = np.zeros((len(sizes), 2, len(orders)))
    for place, size in enumerate(sizes):
        for event, count in found.items():
            own = _under_part(event, size * share) if size and share else event
            curves[place] += count * group_divergence(own, size, orders)
    return curves


def _under_part(event: DpEvent, part: float) -> DpEvent:
    """The release under this part of its noise variance."""
    import dp_accounting as dp

    q, sigma = sampled_gaussian(event, 1)
    release = dp.GaussianDpEvent(sigma * math.sqrt(part))
    return release if q == 1 else dp.PoissonSampledDpEvent(q, release)


def _worst_sum(total: np.ndarray, curves: np.ndarray) -> np.ndarray:
    """The largest sums for at most 0, 1, .. records, the rows of `total`, if some of them are in
    one more scope, with `curves`."""
    worst = total.copy()
    for moved in range(1, len(curves)):
        worst[moved:] = np.maximum(worst[moved:], total[:-moved] + curves[moved])
    return worst


@lru_cache(maxsize=4096)
def group_divergence(event: DpEvent, size: int, orders: tuple[float, ...] = ORDERS) -> np.ndarray:
    """Renyi divergences (2, orders) of one release for a group of `size` records: of the output
    with the group from that without, and the reverse. Cached, so callers must not change the
    result."""
    from scipy.special import logsumexp
    from scipy.stats import binom

    q, sigma = sampled_gaussian(event, size)
    grid = np.array(orders)
    if q == 1:
        return np.tile(grid * (size / sigma) ** 2 / 2, (2, 1))
    curves = np.full((2, len(orders)), np.inf if size else 0.0)
    # Integrands are analytic within pi sigma of the real line (all roots of the mixture's
    # polynomial in exp(u / sigma) are negative), so the trapezoid rule is exact to rounding.
    step = min(0.1, sigma / 16)
    fits = grid * size / sigma <= _WIDEST
    # The integrands' farthest peaks are here and, in the other direction, at -q times this.
    farthest = float(grid[fits].max(initial=1.0)) * size / sigma
    u = np.arange(-q * farthest - 14, farthest + 14, step)
    m = np.arange(size + 1)[:, None]
    shifts = m * u / sigma - (m / sigma) ** 2 / 2
    ratio = logsumexp(shifts + binom.logpmf(m, size, q), axis=0)
    weight = math.log(step / math.sqrt(2 * math.pi)) - u**2 / 2
    for column in np.flatnonzero(fits) if size else ():
        a = grid[column]
        for direction, power in enumerate((a, 1 - a)):
            exponent = power * ratio + weight
            top = exponent.max()
            moment = top + math.log(np.exp(exponent - top).sum())
            curves[direction, column] = (max(moment, 0.0) + _ROUNDING * a) / (a - 1)
    return curves
