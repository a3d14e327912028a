"""Certificates as members of a family with ever more noise: the most private one that an attack's rates leave.

A certificate is more than its epsilon: it is a whole curve of what rates of true and false positives are possible.
Rates that the curve forbids refute it. The least epsilon of the family's members that allow them is the lower bound
that is reported: for Gaussian releases in closed form (mu-GDP), for sampled ones by privacy loss distributions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.pld import gaussian_epsilon

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from fedpriv.audit.rates import Rates


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

    def gaps(self, most_false: np.ndarray, least_true: np.ndarray) -> np.ndarray:
        return GaussianFamily().gaps(self._most_true(most_false, math.log(self.noise)), least_true)

    def epsilon(self, rates: Rates, delta: float) -> float:
        if not rates.mu():
            return 0.0
        low, high = math.log(self.noise / 3), math.log(self.noise * 30)
        if not self._allows(rates, low):
            return float(self._losses(low).get_epsilon_for_delta(delta))
        if self._allows(rates, high):
            return 0.0
        for _ in range(9):
            middle = (low + high) / 2
            low, high = (middle, high) if self._allows(rates, middle) else (low, middle)
        # `high` is forbidden, and with it whatever has more noise.
        return float(self._losses(high).get_epsilon_for_delta(delta))

    def _losses(self, log_noise: float) -> PrivacyLossDistribution:
        return _losses(self.rate, self.rounds, math.exp(log_noise))

    def _allows(self, rates: Rates, log_noise: float) -> bool:
        return bool(rates.least_true <= self._most_true(np.array([rates.most_false]), log_noise)[0])

    def _most_true(self, false: np.ndarray, log_noise: float) -> np.ndarray:
        """The largest true positive rates that go with false positive rates (n,)."""
        levels = np.linspace(0, 12, 121)
        deltas = self._losses(log_noise).get_delta_for_epsilon(levels.tolist())
        most: np.ndarray = np.min(np.exp(levels) * false[:, None] + deltas, axis=1)
        return most.clip(max=1.0)


@cache
def _losses(rate: float, rounds: int, noise: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as pld

    step = 1e-3 * min(10.0, math.sqrt(rounds))  # losses of many rounds spread wider
    once = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=step)
    return once.self_compose(rounds)
