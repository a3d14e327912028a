"""Groups whose records lie in several silos, against every allocation composed on its own."""

from __future__ import annotations

import itertools
import math

import dp_accounting as dp
import numpy as np
import pytest
from accounting_oracles import gaussian_epsilon
from scipy import special, stats

from fedpriv.accountants import split_users
from fedpriv.accountants.combined import RdpAndPld
from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.accountants.group import group_event
from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import group_pld, pld_epsilon
from fedpriv.accountants.renyi import convert
from fedpriv.accountants.split_users import split_epsilon
from fedpriv.errors import ConfigError


def silo(batches: int, steps: int, sigma: float = 5.0) -> list[tuple[dp.DpEvent, int]]:
    return [(dp.PoissonSampledDpEvent(1 / batches, dp.GaussianDpEvent(sigma)), steps)]


CROSSING = [silo(8, 40), silo(4, 12), silo(30, 900)]


def splits(k: int, silos: int) -> list[tuple[int, ...]]:
    """Allocations of k records that leave none of the silos with all of them."""
    return [sizes for sizes in itertools.product(range(k), repeat=silos) if sum(sizes) == k]


def moments(q: float, sigma: float, k: int, order: float) -> tuple[float, float]:
    """Both Renyi divergences of a group of k, by another quadrature."""

    def divergence(power: float) -> float:
        far = order * k / sigma
        x, m = np.linspace(-40 - q * far, far + 40, 400_001), np.arange(k + 1)[:, None]
        parts = stats.binom.logpmf(m, k, q) + m * x / sigma - (m / sigma) ** 2 / 2
        values = power * special.logsumexp(parts, axis=0) + stats.norm.logpdf(x)
        simpson = np.tile([2.0, 4.0], 200_001)[:400_001] * (x[1] - x[0]) / 3
        simpson[[0, -1]] /= 2
        return special.logsumexp(values, b=simpson) / (order - 1)

    return divergence(order), divergence(1 - order)


@pytest.mark.parametrize(
    ("q", "sigma", "k"), [(0.125, 5.0, 3), (0.02, 1.0, 2), (0.7, 2.0, 4), (0.7, 0.05, 2)]
)
def test_divergences_are_the_integrals(q, sigma, k):
    event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))
    curves = split_users._divergences(event, k)
    columns = [column for column in (10, 24, 30, 43) if np.isfinite(curves[k, 0, column])]
    assert len(columns) == 3 + (
        sigma >= 1
    )  # orders 1.09, 2.4, 5.7, 64; moments of large ones are infinite at little noise
    for column in columns:
        assert curves[k, :, column] == pytest.approx(
            moments(q, sigma, k, split_users.ORDERS[column]), rel=1e-6
        )
    assert (curves[1:] >= curves[:-1]).all()  # more records never lose less
    assert not curves[0].any()


def test_integrals_may_lie_far_to_the_left():
    """With much noise and a high rate, the reverse direction's integrand peaks some 35 standard
    deviations below 0."""
    event = dp.PoissonSampledDpEvent(0.9, dp.GaussianDpEvent(20.0))
    found = split_users._divergences(event, 20)[20, :, -1]
    assert found == pytest.approx(moments(0.9, 20.0, 20, split_users.ORDERS[-1]), rel=1e-6)


def test_it_is_the_largest_over_all_allocations():
    k, delta = 5, 1e-5
    curves = [count * split_users._divergences(event, k) for [(event, count)] in CROSSING]
    sums = np.array([sum(c[n] for c, n in zip(curves, sizes)) for sizes in splits(k, 3)]).max(
        axis=0
    )
    known = np.isfinite(sums).all(axis=0)
    brute = max(
        convert(np.array(split_users.ORDERS)[known], direction[known], delta) for direction in sums
    )
    assert split_epsilon(CROSSING, k, delta) == pytest.approx(brute, rel=1e-12)


def test_no_split_loses_more():
    """Privacy loss distributions of every allocation, composed over the silos."""
    two = CROSSING[:2]
    bound = split_epsilon(two, 5, 1e-5)
    exact = [
        pld_epsilon(
            [(group_event(run[0][0], n), run[0][1]) for run, n in zip(two, sizes) if n],
            ADD_REMOVE,
            1e-5,
        )
        for sizes in splits(5, 2)
    ]
    assert max(exact) <= bound <= 1.2 * max(exact)


def test_unsampled_shifts_add_up_in_squares():
    bound = split_epsilon([[(dp.GaussianDpEvent(4.0), 9)], [(dp.GaussianDpEvent(8.0), 9)]], 6, 1e-5)
    worst = gaussian_epsilon(math.hypot(5 / 4, 1 / 8) * 3)
    assert worst <= bound <= 1.15 * worst
    everywhere = split_epsilon(
        [[(dp.GaussianDpEvent(4.0), 9)], [(dp.GaussianDpEvent(8.0), 9)]],
        6,
        1e-5,
        everywhere=[(dp.GaussianDpEvent(6.0), 1)],
    )
    worst = gaussian_epsilon(math.sqrt(9 * (25 / 16 + 1 / 64) + 1))
    assert worst <= everywhere <= 1.15 * worst


def test_a_ledger_certifies_the_worse_of_one_silo_and_several():
    def certified(scopes: list[list[tuple[dp.DpEvent, int]]], k: int) -> dict[str, float]:
        ledger = Ledger(RdpAndPld())
        for name, [(event, count)] in enumerate(scopes):
            ledger.record(
                [Event("server", "user", ADD_REMOVE, event, None, f"silo{name}", group_size=k)],
                count,
            )
        return {row.method: row.certified for row in ledger.rows(1)}

    together = max(group_pld(runs, 8, 1e-5) for runs in CROSSING)
    assert split_epsilon(CROSSING, 8, 1e-5) < together
    assert certified(CROSSING, 8)["pld"] == together
    # so many records that moving one of them changes less than Renyi accounting gives away
    many = [[(dp.PoissonSampledDpEvent(0.9, dp.GaussianDpEvent(100.0)), 1)]] * 2
    together = group_pld(many[0], 40, 1e-5)
    assert certified(many, 40)["pld"] == split_epsilon(many, 40, 1e-5) > together
    assert certified(many, 2)["pld"] == split_epsilon(many, 2, 1e-5) > group_pld(many[0], 2, 1e-5)
    # without sampling the worst split is known exactly
    little = [[(dp.GaussianDpEvent(1000.0), 1)]] * 2
    assert certified(little, 2)["pld"] == group_pld(little[0], 2, 1e-5) < 0.01
    whole = [[(dp.GaussianDpEvent(100.0), 1)]] * 2
    assert (
        certified(whole, 40)["pld"]
        == group_pld(whole[0], 40, 1e-5)
        < split_epsilon(whole, 40, 1e-5)
    )
    assert certified(many[:1], 40)["pld"] == together


def test_what_has_no_bound():
    assert split_epsilon([silo(8, 40), [(dp.NonPrivateDpEvent(), 1)]], 4, 1e-5) == math.inf
    assert split_epsilon(CROSSING, 4, 1e-5, everywhere=[(dp.GaussianDpEvent(0.0), 1)]) == math.inf
    with pytest.raises(ConfigError, match="not for LaplaceDpEvent"):
        split_epsilon([silo(8, 40), [(dp.LaplaceDpEvent(1.0), 1)]], 4, 1e-5)


def test_what_all_records_meet_costs_what_it_costs_the_whole_group():
    k, delta, common = 3, 1e-5, silo(4, 12)
    alone = max(
        convert(
            np.array(split_users.ORDERS)[known := np.isfinite(direction)], direction[known], delta
        )
        for direction in 12 * split_users._divergences(common[0][0], k)[k]
    )
    assert split_epsilon([silo(1000, 1)] * 2, k, delta, everywhere=common) >= alone
