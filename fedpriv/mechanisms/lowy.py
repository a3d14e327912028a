"""The shuffle protocol's noise as its paper sets it.

A. Lowy, A. Ghafelebashi, M. Razaviyayn, Private non-convex federated learning without a trusted
server, Theorem D.2, after A. Cheu, M. Joseph, J. Mao, B. Peng, Shuffle private stochastic convex
optimization. The paper states that such numbers exist. These are the cited work's, for its vector
sum; the constant 24e4 and the logarithm's argument are not confirmed here. The underlying bound is
very loose: `shifted_binomial` computes the true epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.accountants.shifted_binomial import VARIANCE
from fedpriv.errors import require
from fedpriv.mechanisms.binomial_sampling import MOST_TRIALS

FACTOR = 24e4
MOST_EPSILON = 15.0
"""Largest epsilon of one release that the theorem covers."""


def paper_levels(contributions: int, size: int) -> int:
    """g = max(2 ceil(sqrt n), d, 4), made even."""
    levels = max(2 * math.ceil(math.sqrt(contributions)), size, 4)
    return levels + levels % 2


def paper_bits(contributions: int, size: int, *, levels: int, epsilon: float, delta: float) -> int:
    """b, noise bits of each coordinate of each of n contributions: ceil(24e4 g^2 ln(4 (d^2 + 1) /
    delta)^2 / (epsilon^2 n)). Raises ConfigError beyond epsilon 15 or delta 1/2, for which the
    theorem says nothing."""
    covered = 0 < epsilon <= MOST_EPSILON
    allowed = "above 0 and at most 15 with calibration=paper"
    require(covered, "algo.epsilon", f"{epsilon:.4g} a release", allowed)
    allowed = "between 0 and 1/2 with calibration=paper"
    require(0 < delta < 0.5, "accountant.delta", f"{delta:.4g} a release", allowed)
    return math.ceil(FACTOR * (levels * _log(size, delta) / epsilon) ** 2 / contributions)


def _log(size: int, delta: float) -> float:
    return math.log(4 * (size**2 + 1) / delta)


@dataclass(frozen=True)
class ShuffleBudget:
    """The part of a budget (epsilon, `delta`) that one release may spend.

    queries: number of queries a round, each with an equal part.
    calls: releases of one query, which share its part by advanced composition (Theorem D.1 for
        small epsilons: sqrt(8 calls ln(2 / delta)) times the epsilon of one release, with half of
        delta for the composition).
    chosen: M / N, the fraction of silos that take part, which amplifies privacy by 2 M / N
        (Ullman's lemma).
    delta: of the whole run.
    """

    queries: int
    calls: int
    chosen: float
    delta: float

    @property
    def call_epsilon(self) -> float:
        """Epsilon of a release, relative to that of the whole run."""
        several = math.sqrt(8 * self.calls * math.log(2 * self.queries / self.delta))
        composed = several if self.calls > 1 else 1.0
        return 1 / (self.queries * composed * 2 * self.chosen)

    @property
    def call_delta(self) -> float:
        """Delta of a release."""
        releases = 2 * self.calls if self.calls > 1 else 1
        return self.delta / (self.queries * releases * 2 * self.chosen)

    def noise(self, contributions: int, size: int, epsilon: float) -> tuple[int, int]:
        """Levels, and noise bits a coordinate, of the sum of `contributions` vectors of `size`
        coordinates. Raises as `paper_bits`, and where the bits are too many to count."""
        levels = paper_levels(contributions, size)
        own = self.call_epsilon * epsilon
        bits = contributions * paper_bits(
            contributions, size, levels=levels, epsilon=own, delta=self.call_delta
        )
        allowed = (
            f"certified, or a larger algo.epsilon: {bits:.2g} noise bits a coordinate are more "
            "than 2^51"
        )
        require(bits <= MOST_TRIALS, "algo.calibration", "paper", allowed)
        return levels, bits

    def epsilon(self, noise_multiplier: float, size: int) -> float | None:
        """Epsilon of the whole run under binomial noise of this standard deviation, relative to the
        bound; None beyond what the theorem covers."""
        if not noise_multiplier or self.call_delta >= 0.5:
            return None
        own = 2 * _log(size, self.call_delta) * math.sqrt(FACTOR * VARIANCE) / noise_multiplier
        return own / self.call_epsilon if own <= MOST_EPSILON else None
