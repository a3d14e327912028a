"""Certificates as members of a family with ever more noise: the most private one that an attack's rates leave.

A certificate is more than its epsilon: it is a whole curve of what rates of true and false positives are possible.
Rates that the curve forbids refute it. The least epsilon of the family's members that allow them is the lower bound
that is reported: for Gaussian releases in closed form (mu-GDP), for sampled ones by privacy loss distributions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from fedpriv.accountants.events import Event
    from fedpriv.audit.rates import Rates

    LeastFalse = Callable[[float], float]
    """A curve of possible rates: the least false positive rate at which a true positive rate is possible."""

MOST_MU = 64.0
"""Of Gaussian members that are searched: an epsilon of thousands."""


class Family(ABC):
    """What a certificate says a release is, up to the amount of noise."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @abstractmethod
    def epsilon(self, rates: Rates, delta: float) -> float:
        """Least epsilon at `delta` of the members that allow these rates."""

    @abstractmethod
    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        """Least epsilon at `delta` of the members whose curve is not `refuted`; a more private member than one that is
        refuted is refuted too. Not above the exact value."""


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Gaussian releases of any number and size."""

    @property
    def name(self) -> str:
        return "GDP"

    def epsilon(self, rates: Rates, delta: float) -> float:
        return gaussian_epsilon(rates.mu(), delta)

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        from scipy.special import ndtr, ndtri

        def forbids(mu: float) -> bool:
            return refuted(lambda true: float(ndtr(ndtri(true) - mu)))

        low, high = 0.0, MOST_MU
        if not forbids(low):
            return 0.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if forbids(middle) else (low, middle)
        return gaussian_epsilon(low, delta)


@dataclass(frozen=True)
class SampledFamily(Family):
    """`rounds` Gaussian releases, each of a Poisson sample at probability `rate`. noise: multiplier of the certificate,
    near which the search begins."""

    rate: float
    rounds: int
    noise: float

    @property
    def name(self) -> str:
        return "sampled"

    def epsilon(self, rates: Rates, delta: float) -> float:
        if not rates.mu():
            return 0.0
        return self.least_epsilon(lambda least_false: least_false(rates.least_true) > rates.most_false, delta)

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        low, high = math.log(self.noise / 8), math.log(self.noise * 8)
        if refuted(self._curve(low)):
            return float(self._losses(low).get_epsilon_for_delta(delta))
        if not refuted(self._curve(high)):
            return 0.0
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if refuted(self._curve(middle)) else (middle, high)
        # `high` is forbidden, and with it whatever has more noise.
        return float(self._losses(high).get_epsilon_for_delta(delta))

    def _losses(self, log_noise: float) -> PrivacyLossDistribution:
        from dp_accounting.pld import privacy_loss_distribution as pld

        once = pld.from_gaussian_mechanism(
            math.exp(log_noise), sampling_prob=self.rate, value_discretization_interval=1e-3
        )
        return once.self_compose(self.rounds)

    def _curve(self, log_noise: float) -> LeastFalse:
        levels = np.linspace(0, 12, 121)
        deltas = np.asarray(self._losses(log_noise).get_delta_for_epsilon(levels.tolist()))
        factors = np.exp(-levels)
        return lambda true: float(np.max(factors * (true - deltas), initial=0.0))


def family_of(events: Iterable[Event], rounds: int) -> Family | None:
    """What the certificate says the releases to one observer are, if that is Gaussian, sampled or not."""
    import dp_accounting as dp

    from fedpriv.accountants.events import leaves

    own = list(events)
    if any(event.group_size > 1 for event in own):
        return None
    if len(own) == 1 and (hidden := sampling_of(own)):
        [(rate, noise)] = hidden.values()
        return SampledFamily(rate, rounds, noise)
    found = [leaves([(event.certified, 1)]) for event in own]
    if any(part is None for part in found):
        return None
    kinds = {type(leaf) for part in found for leaf in part or ()}
    return GaussianFamily() if kinds <= {dp.GaussianDpEvent, dp.ZCDpEvent} else None


def sampling_of(events: Iterable[Event]) -> dict[str, tuple[float, float]]:
    """Observers from whom a sample of users is hidden, with its rate and the noise multiplier."""
    import dp_accounting as dp

    hidden = {}
    for event in events:
        sampled = event.certified
        if isinstance(sampled, dp.PoissonSampledDpEvent) and isinstance(sampled.event, dp.GaussianDpEvent):
            hidden[event.observer] = (sampled.sampling_probability, sampled.event.noise_multiplier)
    return hidden
