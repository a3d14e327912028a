"""Zero-concentrated differential privacy (zCDP): the claims of papers, and their conversions to
(epsilon, delta).

Bun, Steinke: Concentrated differential privacy, TCC 2016, Proposition 1.3: rho-zCDP implies (rho +
2 sqrt(rho ln(1 / delta)), delta)-DP for every delta. This is valid, and looser than the exact curve
of a Gaussian.
"""

from __future__ import annotations

import math

import attr
from dp_accounting import ZCDpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ZcdpClaim(ZCDpEvent):
    """A paper's claim of rho-zCDP, converted by Proposition 1.3 as in the paper."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        """Epsilon at `delta` of rho-zCDP by the paper's formula."""
        return zcdp_epsilon(rho, delta)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LeadingTermClaim(ZcdpClaim):
    """A claim whose paper omits the term rho of the conversion (Jayaraman et al., NeurIPS 2018)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return 2 * math.sqrt(rho * math.log(1 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SmallEpsilonClaim(ZcdpClaim):
    """A claim whose paper uses rho = epsilon^2 / (8 ln(1 / delta)), valid for epsilon up to 2
    ln(1 / delta) (Lowy, Ghafelebashi, Razaviyayn, Proposition D.1)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return math.sqrt(8 * rho * math.log(1 / delta))

    @staticmethod
    def rho_for(epsilon: float, delta: float) -> float:
        """The rho that the paper uses for `epsilon`."""
        return epsilon**2 / (8 * math.log(1 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MomentsClaim(SmallEpsilonClaim):
    """A claim of the same paper's experiments, by a theorem on sampled batches with unstated
    constants (Appendix H; Abadi et al., Deep learning with differential privacy, CCS 2016, Theorem
    1). The mean of a batch gets noise of variance 8 L^2 R ln(2 / delta) / (n epsilon)^2; rho is
    computed as if the batch held all n records."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return 2 * math.sqrt(rho * math.log(2 / delta))

    @staticmethod
    def rho_for(epsilon: float, delta: float) -> float:
        return epsilon**2 / (4 * math.log(2 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdvancedClaim(ZcdpClaim):
    """A claim by advanced composition: epsilon grows with the square root of the number of
    releases. Its rho is the square of the paper's epsilon for one release (the same paper in the
    shuffle model, Appendices E and F)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return math.sqrt(rho)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at `delta` of rho-zCDP by Proposition 1.3."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The rho that `zcdp_epsilon` turns into `epsilon`."""
    log = math.log(1 / delta)
    # (sqrt(log + epsilon) - sqrt(log))^2 without cancellation
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
