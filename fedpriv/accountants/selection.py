"""The best of a random number of runs (Papernot and Steinke, "Hyperparameter Tuning with Renyi
Differential Privacy", ICLR 2022, Theorem 2). Only the best model is released, not the number.

The number of runs is K ~ D(eta, gamma), the negative binomial distribution truncated to K >= 1; eta
is `shape` and E[K] is `mean`. For any l > 1,

    eps'(lambda) = eps(lambda) + (1 + eta) ((1 - 1/l) eps(l) + ln(1/gamma) / l)
                   + ln(E[K]) / (lambda - 1).

dp_accounting implements this for one event; here it applies to the largest of several curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class TruncatedNegativeBinomial:
    """Distribution of the number of runs, which is at least one.

    mean: expected number of runs.
    shape: 1 for the geometric distribution, 0 for the logarithmic one.
    """

    mean: float
    shape: float

    @cached_property
    def gamma(self) -> float:
        """The parameter in (0, 1] at which the mean is `mean`."""
        from scipy.optimize import brentq

        if self.mean == 1:
            return 1.0
        low = -1.0
        while self.expected_at(math.exp(low)) < self.mean:
            low *= 2
        return math.exp(
            float(
                brentq(
                    lambda log: self.expected_at(math.exp(log)) - self.mean, low, -1e-14, xtol=1e-14
                )
            )
        )

    def expected_at(self, gamma: float) -> float:
        log = math.log(gamma)
        if self.shape == 0:
            return (1 / gamma - 1) / -log
        return self.shape * (1 - gamma) / (gamma * -math.expm1(self.shape * log))

    def draw(self, uniform: Callable[[], float]) -> int:
        """A random number of runs, by inversion of a value of `uniform` in [0, 1)."""
        left = uniform()
        number = 1
        if self.mean == 1:
            return number
        miss = 1 - self.gamma
        chance = miss / -math.log(self.gamma)
        if self.shape:
            chance = self.shape * miss / math.expm1(-self.shape * math.log(self.gamma))
        # Beyond the mean the chances decrease; the loop ends when rounding removes one.
        while left >= chance and (number < self.mean or left - chance < left):
            left -= chance
            chance *= miss * (number + self.shape) / (number + 1)
            number += 1
        return number

    def selected(self, orders: np.ndarray, curve: np.ndarray) -> np.ndarray:
        """Renyi divergence of the released best run at `orders`, if that of each run is at most
        `curve`."""
        others = (1 - 1 / orders) * curve - math.log(self.gamma) / orders
        least = np.nanmin(np.where(orders > 1, others, np.inf))
        return np.asarray(curve + (1 + self.shape) * least + math.log(self.mean) / (orders - 1))
