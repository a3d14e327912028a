"""Zero-concentrated differential privacy as papers use it: their claims, and their conversion to
(epsilon, delta).

Bun, Steinke: Concentrated differential privacy, TCC 2016, Proposition 1.3: rho-zCDP implies (rho +
2 sqrt(rho ln(1 / delta)), delta)-DP for every delta. Valid, and looser than the exact curve of a
Gaussian.
"""

from __future__ import annotations

import math

import attr
from dp_accounting import ZCDpEvent


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ZcdpClaim(ZCDpEvent):
    """A paper's claim of rho-zCDP, which the paper converts by Proposition 1.3; `claimed_epsilon`
    does the same."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        """What the paper makes of rho-zCDP."""
        return zcdp_epsilon(rho, delta)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LeadingTermClaim(ZcdpClaim):
    """The same, in a paper that leaves out the rho beside the square root (Jayaraman et al.,
    NeurIPS 2018)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return 2 * math.sqrt(rho * math.log(1 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SmallEpsilonClaim(ZcdpClaim):
    """The same, where epsilon is taken from rho = epsilon^2 / (8 ln(1 / delta)), which implies it
    up to 2 ln(1 / delta) (Lowy, Ghafelebashi, Razaviyayn, Proposition D.1)."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return math.sqrt(8 * rho * math.log(1 / delta))

    @staticmethod
    def rho_for(epsilon: float, delta: float) -> float:
        """What the paper spends for `epsilon`."""
        return epsilon**2 / (8 * math.log(1 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class MomentsClaim(SmallEpsilonClaim):
    """The same paper's experiments, by a theorem about sampled batches whose constants it does not
    state (Appendix H; Abadi et al., Deep learning with differential privacy, CCS 2016, Theorem 1):
    noise of 8 L^2 R ln(2 / delta) / (n epsilon)^2 on the mean of a batch, the rho of which is taken
    as if all n records were in it."""

    @staticmethod
    def epsilon(rho: float, delta: float) -> float:
        return 2 * math.sqrt(rho * math.log(2 / delta))

    @staticmethod
    def rho_for(epsilon: float, delta: float) -> float:
        return epsilon**2 / (4 * math.log(2 / delta))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class AdvancedClaim(ZcdpClaim):
    """A claim by advanced composition, epsilon growing with the square root of the releases; its
    rho is the square of the epsilon that the paper gives to the release alone (the same paper in
    the shuffle model, Appendices E and F)."""

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
