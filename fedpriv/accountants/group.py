"""Group privacy: what a certificate for one record implies for any k records.

There are four routes, all under add/remove adjacency and with the same data in every release. If
all releases are unsampled Gaussians, the first two also hold for replacing k records, since mu-GDP
implies k mu-GDP for groups (Dong, Roth, Su: Gaussian differential privacy, 2022, Theorem 2.14):

- `group_event`, tight: a group of k in a Poisson sample shifts the sum by Binomial(k, q)
  sensitivities; `group_pld` accounts it.
- `group_rdp`, the lemma of Mironov (2017, Prop. 11): k = 2^c, order a >= 2^(c+1): (a / 2^c, 3^c
  R(a)). k is rounded up.
- `group_dp`, the lemma of (epsilon, delta)-DP (Vadhan 2017, Lemma 2.2): (k eps, k e^((k-1) eps)
  delta).
- `paper_group_claim`, which Uldp-FL (Kato et al. 2024) prints: the second with k rounded down and
  one order too low. It is not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, REPLACE, Composition, Event, leaves
from fedpriv.accountants.renyi import ORDERS, PAPER_ORDERS, convert, rdp_curve
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from numpy.typing import ArrayLike

_SMALLEST = 700.0
"""e^-700 is close to the smallest float."""


def group_event(event: DpEvent, group_size: int) -> DpEvent:
    """One release as a whole group of records sees it, under add/remove of the group.

    Each record is sampled on its own and moves the sum by at most one sensitivity, so m sampled
    records move it by at most m. The worst case is a mixture of Gaussians at 0..k with Binomial(k,
    q) weights (Choquette-Choo et al. 2024, Cor. 4.7).
    """
    import dp_accounting as dp
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
    from scipy.stats import binom

    q, sigma = sampled_gaussian(event, group_size)
    if q == 1:
        return dp.GaussianDpEvent(sigma / group_size)
    sampled = np.arange(group_size + 1)
    shares = binom.pmf(sampled, group_size, q)
    return MixtureOfGaussiansDpEvent(
        sigma, tuple(sampled.astype(float).tolist()), tuple(shares.tolist())
    )


def sampled_gaussian(event: DpEvent, group_size: int) -> tuple[float, float]:
    """Sampling rate and noise multiplier of a release. Raises ConfigError if no group bound is
    known for it."""
    import dp_accounting as dp

    if isinstance(event, dp.GaussianDpEvent):
        return 1.0, event.noise_multiplier
    if isinstance(event, dp.PoissonSampledDpEvent) and isinstance(event.event, dp.GaussianDpEvent):
        return event.sampling_probability, event.event.noise_multiplier
    raise ConfigError(
        "group_size",
        group_size,
        f"group privacy is known for Gaussian and Poisson events, not for {event}",
    )


def dominating(events: Iterable[DpEvent], group_size: int) -> DpEvent | None:
    """One release that is no more private than any of `events`, nor than one release in which each
    record of a group takes part as in any of them: it samples as often as the one that samples most
    and moves as far as the one that moves farthest (Choquette-Choo et al. 2024, Lemma 4.5). None if
    no group bound is known."""
    import dp_accounting as dp

    try:
        known = [sampled_gaussian(event, group_size) for event in dict.fromkeys(events)]
    except ConfigError:
        return None
    rates, noises = zip(*known)
    moved = dp.GaussianDpEvent(min(noises))
    return moved if max(rates) == 1 else dp.PoissonSampledDpEvent(max(rates), moved)


def group_rdp(
    orders: ArrayLike, curve: ArrayLike, group_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Orders and Renyi divergences of a group from those of one record, each of shape (n,).

    Raises ConfigError for an order below 2k, with k rounded up to a power of two; the lemma does
    not cover it.
    """
    doublings = (group_size - 1).bit_length()
    a = np.asarray(orders, float)
    divergences = np.asarray(curve, float)
    lowest = 2 ** (doublings + 1)
    if doublings:
        require(
            bool(np.all(a >= lowest)),
            "order",
            a.min(),
            f"groups of {group_size} need orders >= {lowest}",
        )
    return a / 2**doublings, 3.0**doublings * divergences


def group_rdp_epsilon(composition: Composition, group_size: int, delta: float) -> float:
    """Epsilon at `delta` of `composition` for a group, by `group_rdp` on all allowed orders."""
    rounded_up = 2 ** (group_size - 1).bit_length()
    orders = ORDERS if rounded_up == 1 else _orders_from(2 * rounded_up)
    return convert(
        *group_rdp(orders, rdp_curve(composition, ADD_REMOVE, orders), group_size), delta
    )


def _orders_from(lowest: int) -> tuple[float, ...]:
    """Orders at and above `lowest`: the accountant's own, and 25 more in case these are few."""
    more = {float(round(lowest * step / 8)) for step in range(8, 33)}
    return tuple(sorted({order for order in ORDERS if order >= lowest} | more))


def group_dp(
    composition: Composition, group_size: int, delta: float, *, orders: tuple[float, ...] = ORDERS
) -> float:
    """Epsilon at `delta` of `composition` for a group, by the (epsilon, delta) lemma; inf if no
    order exceeds the group's size.

    At order a, one record has epsilon = A - ln(delta_1) / (a - 1). The condition k e^((k-1)
    epsilon) delta_1 = delta is then linear in ln(delta_1) and solvable for a > k; delta_1 itself
    may be far below the smallest float.
    """
    k = group_size
    a = np.array(orders)
    above = rdp_curve(composition, ADD_REMOVE, orders) + np.log1p(-1 / a) - np.log(a) / (a - 1)
    usable = (a > k) & np.isfinite(above)
    if not usable.any():
        return math.inf
    a = a[usable]
    above = above[usable]
    log_delta_1 = (math.log(delta) - math.log(k) - (k - 1) * above) * (a - 1) / (a - k)
    return float(max(0.0, k * np.min(above - log_delta_1 / (a - 1))))


def lemma_claim(epsilon: Callable[[float], float], group_size: int, delta: float) -> float:
    """Epsilon at `delta` of a group, by the lemma of (epsilon, delta)-DP from a claim for one
    record.

    epsilon: the claimed epsilon of one record at a given delta_1.

    The result is k epsilon(delta_1) where k e^((k - 1) epsilon(delta_1)) delta_1 = delta (Lowy et
    al., Appendix B); inf if delta_1 would be smaller than the smallest float.
    """
    k = group_size
    if k == 1:
        return epsilon(delta)

    def too_low(x: float) -> bool:
        return math.log(k) + (k - 1) * epsilon(math.exp(-x)) - x > math.log(delta)

    # x = ln(1 / delta_1). Claims grow at most like its root, so there is one crossing beyond
    # ln(k / delta).
    if not math.isfinite(epsilon(delta)) or too_low(_SMALLEST):
        return math.inf
    return k * epsilon(math.exp(-bisect(too_low, math.log(k / delta), _SMALLEST)))


def paper_group_claim(composition: Composition, group_size: int, delta: float) -> float:
    """The epsilon that Uldp-FL reports for groups. It is no bound from k = 16 on, nor if k is not a
    power of two.

    k is rounded down to a power of two, and the grid gets the order k + 10, although the lemma
    needs 2k or more.
    """
    doublings = group_size.bit_length() - 1
    rounded_down = 2**doublings
    if rounded_down == 1:
        return convert(PAPER_ORDERS, rdp_curve(composition, ADD_REMOVE, PAPER_ORDERS), delta)
    orders = (*(o for o in PAPER_ORDERS if o >= 2 * rounded_down), float(rounded_down + 10))
    curve = rdp_curve(composition, ADD_REMOVE, orders)
    return convert(np.array(orders) / rounded_down, 3.0**doublings * curve, delta)


def require_proof(composition: Composition, adjacency: str, group_size: int) -> None:
    """Raise ConfigError for a group whose records are replaced, unless all releases are unsampled
    Gaussians: the curve of a Poisson sample holds for add/remove only."""
    allowed = f"{ADD_REMOVE}, or Gaussian releases without sampling, for groups of {group_size}"
    require(adjacency == ADD_REMOVE or gaussian(composition), "adjacency", adjacency, allowed)


def gaussian(composition: Composition) -> bool:
    """Whether all releases are unsampled Gaussians, or one is not private at all."""
    from dp_accounting import GaussianDpEvent

    return all(isinstance(event, GaussianDpEvent) for event in leaves(composition) or ())


def replaced(event: Event) -> Event:
    """An event whose epsilon, by a `Ledger`, holds for replacing the unit.

    Replacing a unit removes one and adds another: two steps of add/remove. For unsampled Gaussian
    releases, a group of two moves the mean twice as far, whatever the directions of the steps, so a
    bound for this group holds for the replacement. The new event is still accounted under
    add/remove, with twice the group size. Events under replace stay unchanged. Raises ConfigError
    for sampled releases: no proof covers replacement by the curve of a removed group.
    """
    if event.adjacency == REPLACE:
        return event
    size = 2 * event.group_size
    require_proof([(event.certified, 1)], REPLACE, size)
    return replace(event, group_size=size)


def bisect(
    too_low: Callable[[float], bool], low: float, high: float, *, within: float = 1e-9
) -> float:
    """The smallest value that is not `too_low`, which holds at `low` and not at `high`, rounded up
    by at most `within` times the larger of itself and 1."""
    while high - low > within * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high
