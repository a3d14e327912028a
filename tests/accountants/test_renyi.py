"""Renyi curves against mpmath and the binomial sum."""

from __future__ import annotations

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from accounting_oracles import balle_epsilon, integer_epsilon, integer_rdp

from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.renyi import (
    ORDERS,
    convert,
    event_curve,
    rdp_curve,
)
from fedpriv.errors import ConfigError


def release(q: float, sigma: float) -> dp.DpEvent:
    return dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))


def test_integer_orders_equal_the_binomial_sum():
    orders = tuple(float(a) for a in (2, 3, 8, 64, 512))
    curve = rdp_curve([(release(0.01, 5.0), 100_000)], ADD_REMOVE, orders)
    assert curve == pytest.approx(
        [100_000 * integer_rdp(0.01, 5.0, int(a)) for a in orders], rel=1e-6
    )
    # row 7, integer orders: 2.8506
    assert integer_epsilon(0.01, 5.0, 100_000) == pytest.approx(2.8506, abs=2e-3)
    assert balle_epsilon(float(curve[2]), 8) == pytest.approx(2.8506, abs=2e-3)


@pytest.mark.parametrize(
    ("q", "sigma", "order"),
    [(0.5, 200.0, 1.1), (0.001, 200.0, 1.02), (0.3, 0.3, 10.9), (0.7, 0.01, 2.5)],
)
def test_fractional_orders_equal_the_integral(q, sigma, order):
    with mpmath.workdps(40):
        s, a = mpmath.mpf(sigma), mpmath.mpf(order)

        def integrand(u):
            return mpmath.npdf(u) * (1 - q + q * mpmath.exp(u / s - 1 / (2 * s**2))) ** a

        cuts = [-14, -7, 0, order / sigma / 2, order / sigma, order / sigma + 7, order / sigma + 14]
        exact = float(mpmath.log(mpmath.quad(integrand, sorted(set(cuts)))) / (a - 1))
    ours = rdp_curve([(release(q, sigma), 1)], ADD_REMOVE, (order,))[0]
    assert exact <= ours <= exact * (1 + 1e-9) + 2e-11


RELATIONS = {
    ADD_REMOVE: dp.NeighboringRelation.ADD_OR_REMOVE_ONE,
    REPLACE: dp.NeighboringRelation.REPLACE_ONE,
}


def fixed_batch(q: float, sigma: float) -> dp.DpEvent:
    return dp.SampledWithoutReplacementDpEvent(10**4, round(q * 10**4), dp.GaussianDpEvent(sigma))


@pytest.mark.parametrize(
    ("q", "sigma"), [(0.0001, 1.0), (0.01, 0.05), (0.5, 0.3), (0.9, 0.51), (0.3, 3.0), (0.1, 9.0)]
)
def test_fixed_batches_have_the_librarys_curve(q, sigma):
    """At orders up to 40 its differences are more than rounding."""
    orders = tuple(order for order in ORDERS if order <= 40)
    library = dp.rdp.RdpAccountant(orders, RELATIONS[REPLACE])
    library.compose(fixed_batch(q, sigma))
    curve = event_curve(fixed_batch(q, sigma), REPLACE, orders)
    np.testing.assert_allclose(curve, library.rdp, rtol=1e-9)


@pytest.mark.parametrize(
    ("q", "sigma", "order"), [(0.5, 200.0, 128), (0.9, 20.0, 60), (0.1, 1e4, 192), (0.2, 0.6, 256)]
)
def test_fixed_batches_of_high_orders_are_never_below_the_theorem(q, sigma, order):
    """Wang, Balle, Kasiviswanathan 2019, Theorem 27, in exact differences of 700 digits."""
    with mpmath.workdps(700):
        power = mpmath.exp(1 / mpmath.mpf(sigma) ** 2)
        moments = [power ** mpmath.mpf(k * (k - 1) // 2) for k in range(order + 2)]

        def difference(of):
            return sum(
                (-1) ** (of - k) * mpmath.binomial(of, k) * moments[k] for k in range(of + 1)
            )

        even = {of: difference(of) for of in range(2, order + 2, 2)}
        moment = 1 + sum(
            mpmath.binomial(order, i)
            * mpmath.mpf(q) ** i
            * min(4 * mpmath.sqrt(even[i // 2 * 2] * even[(i + 1) // 2 * 2]), 2 * moments[i])
            for i in range(2, order + 1)
        )
        exact = float(mpmath.log(moment) / (order - 1))
    ours = event_curve(fixed_batch(q, sigma), REPLACE, (float(order),))[0]
    assert exact <= ours <= exact * (1 + 1e-9)


def test_curves_grow_with_the_order():
    # dp_accounting's own fractional orders do not
    for q, sigma in [(0.1, 5.0), (0.3, 5.0), (0.5, 1.0), (0.9, 0.5)]:
        assert np.all(np.diff(rdp_curve([(release(q, sigma), 1)], ADD_REMOVE)) > -1e-11)


def test_curves_add_up_and_an_open_release_has_none():
    parts = [(release(0.1, 5.0), 3), (dp.GaussianDpEvent(2.0), 2)]
    total = 3 * event_curve(parts[0][0], ADD_REMOVE, ORDERS) + 2 * event_curve(
        parts[1][0], ADD_REMOVE, ORDERS
    )
    np.testing.assert_array_equal(rdp_curve(parts, ADD_REMOVE), total)
    assert np.isinf(rdp_curve([*parts, (dp.NonPrivateDpEvent(), 1)], ADD_REMOVE)).all()
    assert convert(ORDERS, np.full(len(ORDERS), np.inf), 1e-5) == np.inf
    assert convert((), np.zeros(0), 1e-5) == np.inf


def test_a_curve_of_a_sampled_gaussian_is_above_its_rounding():
    """Where there is next to nothing to lose, the library's sums are zero, or below."""
    orders = (2.0, 3.0, 64.0)
    curve, grid = event_curve(release(1e-9, 50.0), ADD_REMOVE, orders), np.array(orders)
    np.testing.assert_allclose(curve, 1e-13 * grid / (grid - 1), rtol=1e-3)


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("noise", [0.3, 1.0, 5.0, 1e6])
def test_a_gaussian_has_the_bits_of_the_library(noise, adjacency):
    event = dp.GaussianDpEvent(noise)
    library = dp.rdp.RdpAccountant(ORDERS, RELATIONS[adjacency])
    library.compose(event)
    np.testing.assert_array_equal(event_curve(event, adjacency, ORDERS), library.rdp)


@pytest.mark.parametrize(
    ("event", "adjacency", "named"),
    [
        (dp.GaussianDpEvent(5.0), REPLACE, "replace"),
        (dp.ZCDpEvent(0.02), ADD_REMOVE, "Poisson sampling of Gaussians"),
    ],
)
def test_some_poisson_samples_have_no_curve(event, adjacency, named):
    with pytest.raises(ConfigError, match=named):
        rdp_curve([(dp.PoissonSampledDpEvent(0.1, event), 1)], adjacency)
