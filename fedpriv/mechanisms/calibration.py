"""The noise that makes a composition of Gaussian releases cost exactly a given epsilon.

The cost of Gaussian releases depends on the noise multiplier z through 1 / z alone, so what they cost at z = 1 tells
the rest in closed form.
"""

from __future__ import annotations

import math


def zcdp_noise(rho: float, epsilon: float, delta: float) -> float:
    """The noise multiplier at which a formula that gives `rho` at multiplier 1 gives `epsilon`, by the conversion
    epsilon = rho + 2 sqrt(rho ln(1 / delta))."""
    from fedpriv.accountants.zcdp import zcdp_rho

    return math.sqrt(rho / zcdp_rho(epsilon, delta))


def gaussian_noise(mean_gap: float, epsilon: float, delta: float) -> float:
    """The noise multiplier at which releases that are `mean_gap` standard deviations apart at multiplier 1 are exactly
    (epsilon, delta)-DP (Balle, Wang: Improving the Gaussian mechanism for differential privacy, ICML 2018, Thm 8)."""
    from dp_accounting import get_sigma_gaussian

    # The root search stops within 1e-12 on either side; this much more noise is on the safe one.
    return mean_gap * (float(get_sigma_gaussian(epsilon, delta)) + 1e-11)
