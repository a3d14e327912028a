"""The shuffle protocol's noise as its paper sets it.

A. Lowy, A. Ghafelebashi, M. Razaviyayn, Private non-convex federated learning without a trusted server, Theorem D.2,
after A. Cheu, M. Joseph, J. Mao, B. Peng, Shuffle private stochastic convex optimization. The paper states that there
are such numbers; they are those of the cited work's vector sum, of which the constant 24e4 and the logarithm's argument
are not confirmed here. The bound behind them is very loose: see the true epsilon by `shifted_binomial`.
"""

from __future__ import annotations

import math

from fedpriv.accountants.shifted_binomial import VARIANCE
from fedpriv.errors import require
from fedpriv.mechanisms.binomial import Binomial


def paper_levels(contributions: int, size: int) -> int:
    """g = max(2 ceil(sqrt n), d, 4), made even."""
    levels = max(2 * math.ceil(math.sqrt(contributions)), size, 4)
    return levels + levels % 2


def paper_bits(contributions: int, size: int, *, levels: int, epsilon: float, delta: float) -> int:
    """b, noise bits of each coordinate of each of n contributions: ceil(24e4 g^2 ln(4 (d^2 + 1) / delta)^2 /
    (epsilon^2 n)). Raises ConfigError beyond epsilon 15 or delta 1/2, for which the theorem says nothing."""
    require(0 < epsilon <= 15, "algo.epsilon", epsilon, "above 0 and at most 15 with calibration=paper")
    require(0 < delta < 0.5, "accountant.delta", delta, "between 0 and 1/2 with calibration=paper")
    log = math.log(4 * (size**2 + 1) / delta)
    return math.ceil(24e4 * (levels * log / epsilon) ** 2 / contributions)


def paper_binomial(clip: float, contributions: int, size: int, *, epsilon: float, delta: float) -> Binomial:
    """The mechanism of one release of `contributions` vectors of `size` coordinates by the paper's constants."""
    levels = paper_levels(contributions, size)
    bits = contributions * paper_bits(contributions, size, levels=levels, epsilon=epsilon, delta=delta)
    return Binomial(clip, math.sqrt(bits * VARIANCE) * 2 / levels, levels)
