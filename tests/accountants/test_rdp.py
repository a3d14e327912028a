"""RDP against the published numbers."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from accounting_oracles import integer_epsilon

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.rdp import Rdp, claimed_epsilon, rdp_epsilon
from fedpriv.accountants.renyi import ORDERS
from fedpriv.accountants.zcdp import ZcdpClaim

# Golden: Opacus on its default orders, delta 1e-5 (q, sigma, rounds, epsilon, tolerance).
OPACUS = [
    (1.0, 5.0, 1, 0.79452, 1e-4),
    (1.0, 5.0, 50, 7.07739, 1e-4),
    (1.0, 5.0, 100, 10.72551, 1e-4),
    (1.0, 5.0, 200, 16.51288, 1e-4),
    (0.1, 5.0, 100, 0.8349, 2e-3),
    (0.3, 5.0, 100, 2.7591, 2e-3),
    (0.5, 5.0, 100, 4.8622, 2e-3),
    (0.7, 5.0, 100, 7.1100, 2e-3),
    (0.1, 5.0, 200, 1.2035, 2e-3),
    (0.3, 5.0, 200, 4.0399, 2e-3),
    (0.5, 5.0, 200, 7.2310, 2e-3),
    (0.01, 5.0, 100_000, 2.8492, 2e-3),
    (1.0, 2.5, 50, 16.513, 1e-3),  # ULDP-NAIVE with its true sensitivity 2CS
    (1.0, 2.5, 100, 25.931, 1e-3),
    (1.0, 2.5, 200, 41.646, 1e-3),
    (1.0, 5 * 0.8**0.5, 100, 12.302, 1e-3),  # one of five noise shares missing
    (1 / 8, 5.0, 20_000, 22.326, 0.1),  # ULDP-GROUP: heart, creditcard and mnist silos
    (1 / 70, 5.0, 350_000, 8.862, 0.04),
    (1 / 169, 5.0, 1_690_000, 7.916, 0.04),
]


def release(q: float, sigma: float) -> dp.DpEvent:
    return dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))


def without_replacement(q: float, sigma: float) -> dp.DpEvent:
    return dp.SampledWithoutReplacementDpEvent(1000, round(1000 * q), dp.GaussianDpEvent(sigma))


@pytest.mark.parametrize(("q", "sigma", "rounds", "epsilon", "tolerance"), OPACUS)
def test_golden_epsilon(q, sigma, rounds, epsilon, tolerance):
    runs = [(release(q, sigma), rounds)]
    assert Rdp().epsilons(runs, ADD_REMOVE)["rdp"] == pytest.approx(epsilon, abs=tolerance)
    assert claimed_epsilon(runs, 1e-5) == pytest.approx(epsilon, abs=tolerance)
    # the binomial sum sees integer orders only, so it is above, by little unless the best order is
    # small
    assert epsilon - tolerance <= integer_epsilon(q, sigma, rounds) <= 1.1 * epsilon


def test_no_warning_from_dp_accounting(caplog, recwarn):
    for q in (0.001, 0.5, 0.97, 1.0):
        for sigma in (0.3, 3.0, 200.0):
            for rounds in (1, 100_000):
                assert 0 <= rdp_epsilon([(release(q, sigma), rounds)], ADD_REMOVE, 1e-5) < np.inf
    assert not caplog.records
    assert not recwarn.list
    # the check can fail: dp_accounting alone, on the same orders, warns
    dp.rdp.RdpAccountant(np.array(ORDERS)).compose(release(0.5, 5.0))
    assert caplog.records


def test_fixed_size_batches_have_their_own_curve():
    # row 31 and T15: q = .1, 100 rounds, std 5 clips; under replace the multiplier is 2.5
    fixed = [(without_replacement(0.1, 2.5), 100)]
    assert Rdp().epsilons(fixed, REPLACE)["rdp"] == pytest.approx(4.0249, abs=1e-3)
    poisson = Rdp().epsilons([(release(0.1, 5.0), 100)], ADD_REMOVE)["rdp"]
    assert poisson < 0.85  # so neither may stand in for the other
    assert claimed_epsilon(fixed, 1e-5) == pytest.approx(4.0249, abs=1e-3)


def test_a_claim_takes_any_event_under_any_adjacency():
    mixed = [(release(0.1, 5.0), 50), (without_replacement(0.1, 2.5), 50)]
    assert 2 < claimed_epsilon(mixed, 1e-5) < 4.0249
    assert claimed_epsilon([(dp.NonPrivateDpEvent(), 1)], 1e-5) == np.inf


def test_claims_of_zcdp_are_converted_by_their_paper_only_where_there_is_nothing_else():
    """ln(1 / delta) = 9: 3 * 1 + 2 * 0.5 = 4 and 4 + 2 sqrt(4 * 9) = 16; a Gaussian of sigma 5 has
    rho 1 / 50."""
    one, other = ZcdpClaim(1.0), ZcdpClaim(0.5)
    assert claimed_epsilon([(one, 3), (other, 2)], np.exp(-9)) == pytest.approx(16, rel=1e-12)
    assert claimed_epsilon([(one, 4)], np.exp(-9)) == pytest.approx(16, rel=1e-12)
    gaussian, claim = dp.GaussianDpEvent(5.0), ZcdpClaim(1 / 50)
    mixed = claimed_epsilon([(gaussian, 10), (claim, 10)], 1e-5)
    assert mixed == pytest.approx(claimed_epsilon([(gaussian, 20)], 1e-5), rel=1e-12)
