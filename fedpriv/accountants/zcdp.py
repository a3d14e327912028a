"""Zero-concentrated differential privacy as papers use it: their claims, and their conversion to (epsilon, delta).

Bun, Steinke: Concentrated differential privacy, TCC 2016, Proposition 1.3: rho-zCDP implies
(rho + 2 sqrt(rho ln(1 / delta)), delta)-DP for every delta. Valid, and looser than the exact curve of a Gaussian.
"""

from __future__ import annotations

import math

import attr
from dp_accounting import ZCDpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ZcdpClaim(ZCDpEvent):
    """A paper's claim of rho-zCDP, which the paper converts by Proposition 1.3; `claimed_epsilon` does the same."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        """What the paper makes of rho-zCDP."""
        return zcdp_epsilon(rho, delta)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LeadingTermClaim(ZcdpClaim):
    """The same, in a paper that leaves out the rho beside the square root (Jayaraman et al., NeurIPS 2018)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return 2 * math.sqrt(rho * math.log(1 / delta))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at `delta` of rho-zCDP by Proposition 1.3."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho that `zcdp_epsilon` turns into `epsilon`."""
    log = math.log(1 / delta)
    # (sqrt(log + epsilon) - sqrt(log))^2 without cancellation
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
