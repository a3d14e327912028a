"""Privacy loss distributions: the tightest curves, composed by FFT (Koskela et al. 2020; Doroshenko
et al. 2022).

Laplace releases are charged as one (`laplace_epsilon`), if there are no others.

Gaussian releases compose to one Gaussian, whose epsilon has a closed form (Balle and Wang 2018, Thm
8), so they are never discretised. Poisson-sampled Gaussians and mixtures of Gaussians use
dp_accounting's connect-the-dots discretisation. It is pessimistic at every interval width: the
discrete curve is a chord of the true convex curve, so it lies above it, and composition keeps that
order. The width only decides how tight the bound is.

The width is `value_discretization_interval` times a power of two. It is finer if one release loses
much less than the interval, and coarser if the composition would need more than `_MAX_POINTS`
points. The grids nest, and only a larger loss leads to a coarser grid, so epsilon stays monotone.
The FFT rounds each composition, so that a small delta of many releases would come out too small.
`FFT_ROUNDING` of delta is set aside for each release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.base import Accountant, unsupported
from fedpriv.accountants.events import ADD_REMOVE, Composition, leaves
from fedpriv.accountants.group import bisect, group_event, require_proof
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from dp_accounting import DpEvent, LaplaceDpEvent
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_MAX_POINTS = 2**19
"""Points of a composed distribution: half a second of FFT."""
_MAX_POINTS_ONCE = {True: 2**14, False: 2**11}
"""Points of one release, plain (True) or a mixture: up to half a second to build."""
_STEPS_PER_SCALE = 16
"""An interval of scale / 16 raises epsilon by less than one part in a thousand."""
_LOG_TAIL = 50.0
"""dp_accounting leaves out exp(-50) of each release's mass and counts it as delta."""
_LARGE_LOSS = 500.0
"""From this epsilon on, dp_accounting's search is not used."""
FFT_ROUNDING = 2.0**-50
"""Of delta, for each release. A transform with 64 bits of mantissa differs by at most 2.7e-16 a
release in 280 drawn compositions, and the closed form of unsampled releases by 2.6e-17."""
_NO_ROUNDING = 1e-6
"""Share of delta below which the chord's margin is larger than the rounding."""
_MOST_RELEASES = 10**7
"""More sampled releases count as unsampled: dp_accounting takes minutes for them."""
_LARGEST_INTERVAL = 100.0
"""On a coarser grid, dp_accounting's exp(interval) overflows."""
_ROUNDED_LOGS = 2.0**-50
"""Relative error of a logarithm of delta: a few roundings."""
_SMALL_TAIL = 1e-300
"""Below this, the standard library's tail of a normal number loses digits."""
_TAIL_WIDTH = 17.0
"""Width of a composed distribution in standard deviations, at dp_accounting's truncation of
1e-15."""


@dataclass(frozen=True)
class Pld(Accountant):
    """Epsilon by privacy loss distributions.

    value_discretization_interval: grid width of the privacy loss. The module's docstring says when
        long compositions or small losses change it.
    """

    value_discretization_interval: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        interval = self.value_discretization_interval
        key = "accountant.value_discretization_interval"
        require(0 < interval <= 1, key, interval, "must be above 0, at most 1")

    def epsilons(
        self, composition: Composition, adjacency: str, group_size: int = 1
    ) -> dict[str, float]:
        """See `Accountant.epsilons`; the method is "pld"."""
        interval = self.value_discretization_interval
        if group_size > 1:
            require_proof(composition, adjacency, group_size)
            return {"pld": group_pld(composition, group_size, self.delta, interval=interval)}
        return {"pld": pld_epsilon(composition, adjacency, self.delta, interval=interval)}


def pld_epsilon(
    composition: Composition, adjacency: str, delta: float, *, interval: float = 1e-4
) -> float:
    """Epsilon at `delta` of `composition` under `adjacency`, both directions; inf if an event is
    not private.

    Supports Gaussian events and, under add/remove, their Poisson sampling and mixtures; and Laplace
    events without others. Raises ConfigError for other events.
    """
    from dp_accounting import LaplaceDpEvent

    found = leaves(composition)
    if found is None:
        return math.inf
    laplace = {one: count for one, count in found.items() if isinstance(one, LaplaceDpEvent)}
    if laplace and len(laplace) == len(found):
        return laplace_epsilon(laplace, delta)
    mean_gap, mixtures = _split(found, adjacency)
    gaps = [
        math.sqrt(count) * max(m.sensitivities) / m.standard_deviation
        for m, count in mixtures.items()
    ]
    unsampled = gaussian_epsilon(math.hypot(mean_gap, *gaps), delta)  # sampling never costs privacy
    if not mixtures:
        return unsampled
    if mean_gap:
        mixtures[_mixture(1 / mean_gap, (1.0,), (1.0,))] = 1
    width = grid_interval(mixtures, interval)
    releases = sum(mixtures.values())
    exact = delta - _rounding(releases, delta)
    if exact <= 0 or releases > _MOST_RELEASES or width > _LARGEST_INTERVAL:
        return unsampled
    parts = (repeated(distribution(mixture, width), count) for mixture, count in mixtures.items())
    return min(
        unsampled, smallest_epsilon(reduce(lambda total, part: total.compose(part), parts), exact)
    )


def _rounding(releases: int, delta: float) -> float:
    """The part of `delta` that the rounding of a composition may hide."""
    rounding = releases * FFT_ROUNDING
    return rounding if rounding > _NO_ROUNDING * delta else 0.0


def group_pld(
    composition: Composition, group_size: int, delta: float, *, interval: float = 1e-4
) -> float:
    """Tight epsilon at `delta` of `composition` for a group of `group_size` records, under
    add/remove, both directions; inf if an event is not private.

    All releases have the same data (see `group_event`). Supports Gaussian events, Poisson-sampled
    or not. Raises ConfigError for other events.
    """
    found = leaves(composition)
    if found is None:
        return math.inf
    groups = [(group_event(event, group_size), count) for event, count in found.items()]
    return pld_epsilon(groups, ADD_REMOVE, delta, interval=interval)


def laplace_epsilon(found: Mapping[LaplaceDpEvent, int], delta: float) -> float:
    """Epsilon at `delta` of Laplace releases, each with the number of times it happened. Together
    they cost at most one that moves as far as all of them (`fedpriv.mechanisms.laplace`), which has
    delta = 1 - exp((epsilon - moved) / 2)."""
    moved = sum(count / event.noise_multiplier for event, count in found.items())
    return max(0.0, float(moved) + 2 * math.log1p(-delta))


def gaussian_epsilon(mean_gap: float, delta: float) -> float:
    """Epsilon at `delta` of two unit-variance Gaussians whose means differ by `mean_gap`, rounded
    up by at most 1e-13 times the larger of itself and 1, and by what rounding could have hidden.

    Solves Balle and Wang's Theorem 8 in logarithms, as `dp_accounting.get_epsilon_gaussian` does.
    A run calls this once per round and observer. There scipy's generic distribution costs 1.5 ms
    per call, and its search for a zero a fifth of a second at a run's start.

    The search is Newton's. The logarithm of delta is a concave function of epsilon: delta is a
    convolution of log-concave functions, the loss's density and (1 - exp(-x))_+. So from an epsilon
    that is large enough every step leads to a smaller one that is still large enough.
    """
    sigma = 1 / mean_gap if mean_gap else math.inf
    if sigma in (0.0, math.inf):
        return 0.0 if sigma else math.inf
    log_delta = float(np.log(delta))
    if _log_delta(sigma, 0.0)[0] < log_delta:
        return 0.0
    # delta is at most the chance of a loss above epsilon, at most exp(-t^2 / 2) at t deviations.
    epsilon = mean_gap * (mean_gap / 2 + math.sqrt(2 * max(0.0, -log_delta)))
    while True:
        now, slope = _log_delta(sigma, epsilon)
        step = (now - log_delta) / slope if slope else math.inf
        if not step > 1e-13 * max(epsilon, 1.0):
            return epsilon - _ROUNDED_LOGS * (1 - now) / slope
        if step >= epsilon:  # rounding has the better of a tiny gap
            return bisect(lambda e: _log_delta(sigma, e)[0] > log_delta, 0.0, epsilon, within=1e-13)
        epsilon -= step


def _log_delta(sigma: float, epsilon: float) -> tuple[float, float]:
    """ln of the smallest delta of a Gaussian release with noise multiplier `sigma` at `epsilon`,
    and its derivative by epsilon."""
    middle = epsilon * sigma + 1 / (2 * sigma)
    above = log_normal(1 / sigma - middle)
    below = epsilon + log_normal(-middle)
    if not below < above:
        return -math.inf, 0.0
    found = above + math.log(-math.expm1(below - above))
    return found, -math.exp(below - found)


def log_normal(x: float) -> float:
    """ln of the chance that a standard normal number is below `x`."""
    tail = math.erfc(abs(x) / math.sqrt(2)) / 2
    if x > 0:
        return math.log1p(-tail)
    if tail > _SMALL_TAIL:
        return math.log(tail)
    from scipy.special import log_ndtr  # late: it takes a tenth of a run's start

    return float(log_ndtr(x))


def _split(
    found: dict[DpEvent, int], adjacency: str
) -> tuple[float, dict[MixtureOfGaussiansDpEvent, int]]:
    """The mean gap of all unsampled Gaussians together, and the other events as mixtures of
    Gaussians with counts."""
    import dp_accounting as dp
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

    squared_gap = 0.0
    mixtures: dict[MixtureOfGaussiansDpEvent, int] = {}
    for event, count in found.items():
        if isinstance(event, dp.GaussianDpEvent):
            squared_gap += count / event.noise_multiplier**2
        elif adjacency == ADD_REMOVE and isinstance(event, MixtureOfGaussiansDpEvent):
            mixture = _mixture(event.standard_deviation, event.sensitivities, event.sampling_probs)
            if not _is_plain(mixture):
                from fedpriv.accountants.mixture_losses import computable

                mixture = computable(mixture)  # before the grid is chosen for it
            mixtures[mixture] = mixtures.get(mixture, 0) + count
        elif (
            adjacency == ADD_REMOVE
            and isinstance(event, dp.PoissonSampledDpEvent)
            and isinstance(event.event, dp.GaussianDpEvent)
        ):
            q = event.sampling_probability
            mixture = _mixture(event.event.noise_multiplier, (0.0, 1.0), (1 - q, q))
            mixtures[mixture] = mixtures.get(mixture, 0) + count
        else:
            hint = "supported are Gaussian events, and their sampling and mixtures under add/remove"
            raise unsupported("pld", event, adjacency, hint=hint)
    return math.sqrt(squared_gap), mixtures


def _mixture(
    noise: float, sensitivities: Sequence[float], shares: Sequence[float]
) -> MixtureOfGaussiansDpEvent:
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

    return MixtureOfGaussiansDpEvent(noise, tuple(sensitivities), tuple(shares))


def _is_plain(mixture: MixtureOfGaussiansDpEvent) -> bool:
    return mixture.sensitivities in ((1.0,), (0.0, 1.0))


@lru_cache(maxsize=128)
def distribution(mixture: MixtureOfGaussiansDpEvent, interval: float) -> PrivacyLossDistribution:
    """Privacy losses of one release, in both directions, on multiples of `interval`."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    from fedpriv.accountants.mixture_losses import mixture_distribution

    if _is_plain(mixture):  # the same distribution, ten times faster
        return pld.from_gaussian_mechanism(
            mixture.standard_deviation,
            value_discretization_interval=interval,
            log_mass_truncation_bound=-_LOG_TAIL,
            sampling_prob=mixture.sampling_probs[-1],
        )
    return mixture_distribution(mixture, interval, -_LOG_TAIL)


def repeated(once: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    """`once` composed `count` times.

    For a large count, pairs are composed first: dp_accounting raises the number of points of a
    short distribution to the power of the count, as a plain integer, to check if it stays short.
    """
    if count < 10_000:
        return once.self_compose(count)
    total = once.self_compose(2, tail_mass_truncation=0).self_compose(count // 2)
    return total.compose(once) if count % 2 else total


def smallest_epsilon(losses: PrivacyLossDistribution, delta: float) -> float:
    """Smallest epsilon at `delta`.

    dp_accounting's own search computes exp(-loss), which underflows near 700. For larger losses it
    counts the whole mass beyond epsilon, and its result is too high by about 1.
    """
    with np.errstate(over="ignore"):
        epsilon = float(losses.get_epsilon_for_delta(delta))
    if epsilon < _LARGE_LOSS or losses.get_delta_for_epsilon(math.inf) > delta:
        return epsilon

    def too_low(loss: float) -> bool:
        return bool(losses.get_delta_for_epsilon(loss) > delta)

    low = high = _LARGE_LOSS
    while too_low(high):
        low, high = high, 2 * high
    return bisect(too_low, low, high)


def grid_interval(mixtures: dict[MixtureOfGaussiansDpEvent, int], base: float) -> float:
    """`base` times a power of two that suits these mixtures. The estimates affect cost and
    tightness, never validity."""
    finest = base
    coarsest = 0.0
    variance = 0.0
    width = 0.0
    for mixture, count in mixtures.items():
        scale, span = _loss_size(mixture)
        finest = min(finest, scale / _STEPS_PER_SCALE)
        coarsest = max(coarsest, span / _MAX_POINTS_ONCE[_is_plain(mixture)])
        variance += count * scale**2
        width += count * span
    coarsest = max(coarsest, min(width, _TAIL_WIDTH * math.sqrt(variance)) / _MAX_POINTS)
    return base * 2.0 ** max(
        math.floor(math.log2(finest / base)), math.ceil(math.log2(coarsest / base))
    )


@lru_cache(maxsize=128)
def _loss_size(mixture: MixtureOfGaussiansDpEvent) -> tuple[float, float]:
    """Typical size and largest size of the privacy loss of one release."""
    from scipy.special import logsumexp

    sigma = mixture.standard_deviation
    c = np.array(mixture.sensitivities)
    p = np.array(mixture.sampling_probs)
    c = c[p > 0]
    p = p[p > 0]
    with np.errstate(over="ignore"):
        chi_squared = p @ np.expm1(np.outer(c, c) / sigma**2) @ p
    far = np.max(c + sigma * np.sqrt(2 * np.maximum(0, _LOG_TAIL + np.log(p))))
    return math.sqrt(np.log1p(chi_squared)), float(logsumexp((c * far - c**2 / 2) / sigma**2, b=p))


@dataclass(frozen=True)
class RdpAndPld(Pld, Rdp):
    """Both methods, or the one that supports all events.

    Raises ConfigError if neither does.
    """

    def epsilons(
        self, composition: Composition, adjacency: str, group_size: int = 1
    ) -> dict[str, float]:
        """See `Accountant.epsilons`; the methods are "rdp" and "pld"."""
        found: dict[str, float] = {}
        refusals: list[ConfigError] = []
        for method in (Rdp, Pld):
            try:
                found |= method.epsilons(self, composition, adjacency, group_size)
            except ConfigError as refusal:
                refusals.append(refusal)
        if not found:
            raise refusals[0]
        return found
