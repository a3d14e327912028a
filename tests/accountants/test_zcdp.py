"""zCDP's conversion at a delta whose logarithm is a whole number: ln(1 / delta) = 9."""

import math

import pytest

from fedpriv.accountants.rdp import claimed_epsilon
from fedpriv.accountants.zcdp import (
    AdvancedClaim,
    LeadingTermClaim,
    MomentsClaim,
    SmallEpsilonClaim,
    ZcdpClaim,
    zcdp_epsilon,
    zcdp_rho,
)

DELTA = math.exp(-9)


def test_the_conversion_is_bun_and_steinkes():
    """Proposition 1.3: 4 + 2 sqrt(4 * 9) = 16; the paper that leaves out the first term has 12."""
    assert zcdp_epsilon(4.0, DELTA) == pytest.approx(16, rel=1e-12)
    assert ZcdpClaim.epsilon(4.0, DELTA) == pytest.approx(16, rel=1e-12)
    assert LeadingTermClaim.epsilon(4.0, DELTA) == pytest.approx(12, rel=1e-12)


def test_rho_is_what_turns_into_epsilon():
    assert zcdp_rho(16.0, DELTA) == pytest.approx(4, rel=1e-12)
    for epsilon in (1e-9, 0.1, 7.0, 300.0):
        assert zcdp_epsilon(zcdp_rho(epsilon, 1e-5), 1e-5) == pytest.approx(epsilon, rel=1e-12)


def test_the_conversions_that_lowy_et_al_calibrate_by():
    """Proposition D.1: sqrt(8 * 2 * 9) = 12. Appendix H: with ln(2 / delta) = 16, 2 sqrt(4 * 16) =
    16."""
    assert SmallEpsilonClaim.epsilon(2.0, DELTA) == pytest.approx(12, rel=1e-12)
    assert SmallEpsilonClaim.rho_for(12.0, DELTA) == pytest.approx(2, rel=1e-12)
    assert MomentsClaim.epsilon(4.0, 2 * math.exp(-16)) == pytest.approx(16, rel=1e-12)
    assert MomentsClaim.rho_for(16.0, 2 * math.exp(-16)) == pytest.approx(4, rel=1e-12)


def test_claims_by_different_formulas_are_not_mixed():
    claims = [(ZcdpClaim(0.1), 1), (MomentsClaim(0.1), 1)]
    with pytest.raises(ValueError, match="different formulas"):
        claimed_epsilon(claims, 1e-5)
    assert claimed_epsilon(
        [(AdvancedClaim(4.0), 1), (AdvancedClaim(2.5), 2)], 1e-5
    ) == pytest.approx(3.0)
