"""Families of privacy curves: one type of release with any amount of noise.

A certificate is more than its epsilon. It is a curve that says which pairs of true and false
positive rates are possible, and rates outside the curve refute it. The audit reports the smallest
epsilon of the family's members that the rates do not refute: in closed form for Gaussian releases
(mu-GDP), by privacy loss distributions for sampled releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import dp_accounting as dp
import numpy as np
from dp_accounting import DpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import ndtr, ndtri

from fedpriv.accountants.events import Event, leaves
from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.audit.rates import largest_refuted
from fedpriv.parties.party import silo_name

LeastFalse = Callable[[float], float]
"""A privacy curve: the smallest false positive rate that allows a true positive rate."""

LEVELS = np.linspace(0, 12, 121)
"""Epsilons at which the curve of sampled releases is evaluated; its tangents there replace it."""
QUANTILE_LIMIT = 1e3
"""More than any difference of normal quantiles."""
MU_LIMIT = 64.0
"""Upper end of the search among Gaussian members: an epsilon of thousands."""


@dataclass(frozen=True)
class GaussianFamily:
    """Gaussian releases of any number and size.

    >>> from fedpriv.audit.rates import Rates
    >>> rates = Rates(0.95, negatives=1000, false_positives=0, positives=1000, true_positives=900)
    >>> round(GaussianFamily().least_epsilon(rates.refute, delta=1e-5), 1)
    23.2
    """

    name: ClassVar[str] = "GDP"

    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        """Distance of rates (n,) from what the family allows: larger gaps prove more."""
        return np.asarray(ndtri(least_true) - ndtri(most_false))

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        """Smallest epsilon at `delta` of the members that are not `refuted`, never above the exact
        value.

        A member with more noise than a refuted one must be refuted too.
        """
        mu = largest_refuted(
            lambda mu: refuted(lambda true: float(ndtr(ndtri(true) - mu))), high=MU_LIMIT, steps=30
        )
        return gaussian_epsilon(mu, delta) if mu else 0.0


@dataclass(frozen=True)
class SampledFamily:
    """Gaussian releases, each of a Poisson sample.

    rate: probability with which a unit is sampled.
    rounds: number of releases.
    noise: noise multiplier of the certificate; the search starts near it.
    """

    rate: float
    rounds: int
    noise: float

    name: ClassVar[str] = "sampled"

    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        """As in `GaussianFamily`."""
        most_true = self._most_true(most_false, math.log(self.noise))
        gaussian = GaussianFamily()
        # A weak certificate allows every true positive rate at most false positive rates. Those
        # are compared as Gaussian rates.
        weak = gaussian.gaps(most_false, least_true) - QUANTILE_LIMIT
        return np.where(most_true < 1, gaussian.gaps(most_true, least_true), weak)

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        """As in `GaussianFamily`."""
        low = math.log(self.noise / 3)
        high = math.log(self.noise * 30)
        if refuted(self._curve(low)):
            return float(self._losses(low).get_epsilon_for_delta(delta))
        # A member with more noise than a refuted one is refuted too.
        most = largest_refuted(lambda x: refuted(self._curve(-x)), low=-high, high=-low, steps=9)
        return float(self._losses(-most).get_epsilon_for_delta(delta)) if most > -high else 0.0

    def _losses(self, log_noise: float) -> PrivacyLossDistribution:
        return _losses(self.rate, self.rounds, math.exp(log_noise))

    def _curve(self, log_noise: float) -> LeastFalse:
        deltas = self._deltas(log_noise)
        return lambda true: float(np.max(np.exp(-LEVELS) * (true - deltas), initial=0.0))

    def _most_true(self, false: np.ndarray, log_noise: float) -> np.ndarray:
        """The largest true positive rates that go with false positive rates (n,)."""
        tangents = np.exp(LEVELS) * false[:, None] + self._deltas(log_noise)
        return np.asarray(tangents.min(axis=1).clip(max=1.0))

    def _deltas(self, log_noise: float) -> np.ndarray:
        return np.asarray(self._losses(log_noise).get_delta_for_epsilon(LEVELS.tolist()))


Family = GaussianFamily | SampledFamily
"""The release that a certificate describes, up to its amount of noise."""


@cache
def _losses(rate: float, rounds: int, noise: float) -> PrivacyLossDistribution:
    step = 1e-3 * min(10.0, math.sqrt(rounds))  # losses of many rounds spread wider
    once = pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=step
    )
    return once.self_compose(rounds)


def family_of(events: Iterable[Event], rounds: int, silo: int | None) -> Family | None:
    """The family that the certificate of one observer belongs to; None if it belongs to neither.

    events: the observer's events of one round.
    silo: the silo of the unit; None: any silo, and then all silos must have the same family.
    """
    scopes: dict[str, list[Event]] = {}
    for event in events:
        scopes.setdefault(event.scope, []).append(event)
    if silo is not None and silo_name(silo) in scopes:
        return _composed(scopes[silo_name(silo)], rounds)
    families = {_composed(own, rounds) for own in scopes.values()}
    return families.pop() if len(families) == 1 else None


def _composed(events: list[Event], rounds: int) -> Family | None:
    """The family of these events, repeated in each of the rounds."""
    found = leaves([(event.certified, rounds) for event in events])
    if not found or any(event.group_size > 1 for event in events):
        return None
    if all(isinstance(leaf, dp.GaussianDpEvent | dp.ZCDpEvent) for leaf in found):
        return GaussianFamily()
    [(leaf, times), *others] = found.items()
    sampling = _sampling(leaf)
    return SampledFamily(sampling[0], times, sampling[1]) if sampling and not others else None


def sampling_of(events: Iterable[Event]) -> dict[str, tuple[float, float]]:
    """Sampling rate and noise multiplier for each observer that does not see the sample."""
    return {
        event.observer: sampling
        for event in events
        if (sampling := _sampling(event.certified)) is not None
    }


def _sampling(event: DpEvent) -> tuple[float, float] | None:
    """Sampling rate and noise multiplier of a Gaussian release of a Poisson sample."""
    if isinstance(event, dp.PoissonSampledDpEvent) and isinstance(event.event, dp.GaussianDpEvent):
        return event.sampling_probability, event.event.noise_multiplier
    return None
