"""Certificates as members of a family with ever more noise: the most private one that an attack's
rates leave.

A certificate is more than its epsilon: it is a whole curve of what rates of true and false
positives are possible. Rates that the curve forbids refute it. The least epsilon of the family's
members that allow them is the lower bound that is reported: for Gaussian releases in closed form
(mu-GDP), for sampled ones by privacy loss distributions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.parties.party import silo_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from fedpriv.accountants.events import Event
    from fedpriv.audit.rates import Rates

    LeastFalse = Callable[[float], float]
    """A curve of possible rates: the least false positive rate at which a true positive rate is
    possible."""

LEVELS = np.linspace(0, 12, 121)
"""Epsilons at which a curve of sampled releases is looked at; between them it is taken for its
tangents."""
FAR = 1e3
"""Beyond any distance of normal quantiles."""
MOST_MU = 64.0
"""Of Gaussian members that are searched: an epsilon of thousands."""


class Family(ABC):
    """What a certificate says a release is, up to the amount of noise."""

    @property
    @abstractmethod
    def name(self) -> str:
        """For tables."""

    @abstractmethod
    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        """How far rates are from what the family allows, (n,): the larger, the more they say."""

    @abstractmethod
    def epsilon(self, rates: Rates, delta: float) -> float:
        """Least epsilon at `delta` of the members that allow these rates."""

    @abstractmethod
    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        """Least epsilon at `delta` of the members whose curve is not `refuted`; a more private
        member than one that is refuted is refuted too. Not above the exact value."""


@dataclass(frozen=True)
class GaussianFamily(Family):
    """Gaussian releases of any number and size."""

    @property
    def name(self) -> str:
        return "GDP"

    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        from scipy.special import ndtri

        found: np.ndarray = ndtri(least_true) - ndtri(most_false)
        return found

    def epsilon(self, rates: Rates, delta: float) -> float:
        return gaussian_epsilon(rates.mu(), delta)

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        from scipy.special import ndtr, ndtri

        def forbids(mu: float) -> bool:
            return refuted(lambda true: float(ndtr(ndtri(true) - mu)))

        low = 0.0
        high = MOST_MU
        if not forbids(low):
            return 0.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if forbids(middle) else (low, middle)
        return gaussian_epsilon(low, delta)


@dataclass(frozen=True)
class SampledFamily(Family):
    """`rounds` Gaussian releases, each of a Poisson sample at probability `rate`.

    noise: multiplier of the certificate, near which the search begins.
    """

    rate: float
    rounds: int
    noise: float

    @property
    def name(self) -> str:
        return "sampled"

    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        most_true = self._most_true(most_false, math.log(self.noise))
        gaussian = GaussianFamily()
        # A weak certificate allows every true positive rate at most false ones: these compare as a
        # Gaussian's would.
        weak = gaussian.gaps(most_false, least_true) - FAR
        found: np.ndarray = np.where(most_true < 1, gaussian.gaps(most_true, least_true), weak)
        return found

    def epsilon(self, rates: Rates, delta: float) -> float:
        if not rates.mu():
            return 0.0
        return self.least_epsilon(
            lambda least_false: least_false(rates.least_true) > rates.most_false, delta
        )

    def least_epsilon(self, refuted: Callable[[LeastFalse], bool], delta: float) -> float:
        low = math.log(self.noise / 3)
        high = math.log(self.noise * 30)
        if refuted(self._curve(low)):
            return float(self._losses(low).get_epsilon_for_delta(delta))
        if not refuted(self._curve(high)):
            return 0.0
        for _ in range(9):
            middle = (low + high) / 2
            low, high = (low, middle) if refuted(self._curve(middle)) else (middle, high)
        # `high` is forbidden, and with it whatever has more noise.
        return float(self._losses(high).get_epsilon_for_delta(delta))

    def _losses(self, log_noise: float) -> PrivacyLossDistribution:
        return _losses(self.rate, self.rounds, math.exp(log_noise))

    def _curve(self, log_noise: float) -> LeastFalse:
        deltas = self._deltas(log_noise)
        return lambda true: float(np.max(np.exp(-LEVELS) * (true - deltas), initial=0.0))

    def _most_true(self, false: np.ndarray, log_noise: float) -> np.ndarray:
        """The largest true positive rates that go with false positive rates (n,)."""
        most: np.ndarray = np.min(np.exp(LEVELS) * false[:, None] + self._deltas(log_noise), axis=1)
        return most.clip(max=1.0)

    def _deltas(self, log_noise: float) -> np.ndarray:
        return np.asarray(self._losses(log_noise).get_delta_for_epsilon(LEVELS.tolist()))


@cache
def _losses(rate: float, rounds: int, noise: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = 1e-3 * min(10.0, math.sqrt(rounds))  # losses of many rounds spread wider
    once = pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=step
    )
    return once.self_compose(rounds)


def family_of(events: Iterable[Event], rounds: int, silo: int | None) -> Family | None:
    """What certificates say the releases to one observer are, if that is Gaussian, sampled or not.

    events: of one round.
    silo: where the unit is; None: in any of them, and the answer must be the same for all.
    """
    scopes: dict[str, list[Event]] = {}
    for event in events:
        scopes.setdefault(event.scope, []).append(event)
    if silo is not None and silo_name(silo) in scopes:
        return _composed(scopes[silo_name(silo)], rounds)
    families = {_composed(own, rounds) for own in scopes.values()}
    return families.pop() if len(families) == 1 else None


def _composed(events: list[Event], rounds: int) -> Family | None:
    """What `rounds` times these events come to."""
    import dp_accounting as dp

    from fedpriv.accountants.events import leaves

    found = leaves([(event.certified, rounds) for event in events])
    if not found or any(event.group_size > 1 for event in events):
        return None
    if all(isinstance(leaf, dp.GaussianDpEvent | dp.ZCDpEvent) for leaf in found):
        return GaussianFamily()
    [(leaf, times), *others] = found.items()
    if (
        isinstance(leaf, dp.PoissonSampledDpEvent)
        and isinstance(leaf.event, dp.GaussianDpEvent)
        and not others
    ):
        return SampledFamily(leaf.sampling_probability, times, leaf.event.noise_multiplier)
    return None


def sampling_of(events: Iterable[Event]) -> dict[str, tuple[float, float]]:
    """Observers from whom a sample of users is hidden, with its rate and the noise multiplier."""
    import dp_accounting as dp

    hidden = {}
    for event in events:
        sampled = event.certified
        if isinstance(sampled, dp.PoissonSampledDpEvent) and isinstance(
            sampled.event, dp.GaussianDpEvent
        ):
            hidden[event.observer] = (sampled.sampling_probability, sampled.event.noise_multiplier)
    return hidden
