"""The noise at which a composition of Gaussian releases costs exactly a given epsilon.

The cost of Gaussian releases depends on the noise multiplier z through 1 / z alone. So their cost
at z = 1 determines it for every z, in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.accountants.base import Accountant


def zcdp_noise(rho: float, epsilon: float, delta: float) -> float:
    """The noise multiplier at which a formula that gives `rho` at multiplier 1 gives `epsilon`, by
    the conversion epsilon = rho + 2 sqrt(rho ln(1 / delta))."""
    from fedpriv.accountants.zcdp import zcdp_rho

    return noise_for_rho(rho, zcdp_rho(epsilon, delta))


def noise_for_rho(rho: float, spent: float) -> float:
    """The noise multiplier at which a formula that gives `rho` at multiplier 1 gives `spent`."""
    return math.sqrt(rho / spent)


def gaussian_noise(mean_gap: float, epsilon: float, delta: float) -> float:
    """The noise multiplier at which releases that are `mean_gap` standard deviations apart at
    multiplier 1 are exactly (epsilon, delta)-DP (Balle, Wang: Improving the Gaussian mechanism for
    differential privacy, ICML 2018, Thm 8)."""
    from dp_accounting import get_sigma_gaussian

    # The root search stops within 1e-12 on either side; this much more noise is the safe side.
    return mean_gap * (float(get_sigma_gaussian(epsilon, delta)) + 1e-11)


def composed_noise(
    runs: Callable[[float], Iterable[Sequence[tuple[DpEvent, int]]]],
    adjacency: str,
    epsilon: float,
    delta: float,
) -> float:
    """The factor on all noise multipliers at which the costliest of several compositions costs
    `epsilon`. The factor is exact if no release is sampled. Else it is right to a thousandth, by
    Renyi divergences or privacy loss distributions.

    runs: returns the compositions at a factor. At factor 1, if none is sampled, all releases of a
        composition together are at most one standard deviation apart.
    """
    from dp_accounting import GaussianDpEvent

    from fedpriv.accountants.calibrate import smallest_noise
    from fedpriv.accountants.pld import RdpAndPld
    from fedpriv.accountants.rdp import Rdp

    whole = gaussian_noise(1.0, epsilon, delta)
    if all(
        isinstance(event, GaussianDpEvent)
        for composition in runs(whole)
        for event, _ in composition
    ):
        return whole

    def spent(accountant: Accountant, factor: float) -> float:
        return max(
            min(accountant.epsilons(composition, adjacency).values())
            for composition in runs(factor)
        )

    rough = partial(spent, Rdp(delta))  # fast
    near = smallest_noise(rough, epsilon, near=whole, tolerance=0.01)
    return smallest_noise(partial(spent, RdpAndPld(delta)), epsilon, near=near)


def paper_noise(steps: int, silos: int, epsilon: float, delta: float) -> float:
    """Equation (2), sigma^2 = 8 G^2 T ln(1 / delta) / (m^2 n_(1)^2 epsilon^2), as a multiple of G /
    n_(1).

    The m^2 is right for a single noise vector on the mean of all m users' gradients. Here every
    user adds a vector of this size to its own gradient, so the claim fails by a factor of up to m.
    The formula is here to show that.
    """
    return math.sqrt(8 * steps * math.log(1 / delta)) / (silos * epsilon)
