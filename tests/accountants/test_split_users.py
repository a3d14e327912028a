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
from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.accountants.group import dominating, group_event
from fedpriv.accountants.ledger import Ledger
from fedpriv.accountants.pld import RdpAndPld, group_pld, pld_epsilon
from fedpriv.accountants.renyi import convert
from fedpriv.accountants.split_users import split_epsilon
from fedpriv.errors import ConfigError


def silo(batches: int, steps: int, sigma: float = 5.0) -> list[tuple[dp.DpEvent, int]]:
    return [(dp.PoissonSampledDpEvent(1 / batches, dp.GaussianDpEvent(sigma)), steps)]


CROSSING = [silo(8, 40), silo(4, 12), silo(30, 900)]


def splits(k: int, silos: int) -> list[tuple[int, ...]]:
    """Allocations of k records that leave none of the silos with all of them."""
    return [sizes for sizes in itertools.product(range(k), repeat=silos) if sum(sizes) == k]


def by_size(event: dp.DpEvent, most: int) -> np.ndarray:
    """Divergences of groups of 0 to `most` records."""
    return np.array([split_users.group_divergence(event, size) for size in range(most + 1)])


def moments(q: float, sigma: float, k: int, order: float) -> tuple[float, float]:
    """Both Renyi divergences of a group of k, by another quadrature."""

    def divergence(power: float) -> float:
        far = order * k / sigma
        x, m = np.linspace(-40 - q * far, far + 40, 100_001), np.arange(k + 1)[:, None]
        parts = stats.binom.logpmf(m, k, q) + m * x / sigma - (m / sigma) ** 2 / 2
        values = power * special.logsumexp(parts, axis=0) + stats.norm.logpdf(x)
        simpson = np.tile([2.0, 4.0], 50_001)[:100_001] * (x[1] - x[0]) / 3
        simpson[[0, -1]] /= 2
        return special.logsumexp(values, b=simpson) / (order - 1)

    return divergence(order), divergence(1 - order)


@pytest.mark.parametrize(("q", "sigma", "k"), [(0.125, 5.0, 3), (0.7, 2.0, 4), (0.7, 0.05, 2)])
def test_divergences_are_the_integrals(q, sigma, k):
    event = dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))
    curves = by_size(event, k)
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
    found = split_users.group_divergence(event, 20)
    for order in (64.0, 256.0):
        column = split_users.ORDERS.index(order)
        assert found[:, column] == pytest.approx(moments(0.9, 20.0, 20, order), rel=1e-6)


def test_it_is_the_largest_over_all_allocations():
    k, delta = 5, 1e-5
    curves = [count * by_size(event, k) for [(event, count)] in CROSSING]
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
    assert certified(many, 2)["pld"] == group_pld(many[0], 2, 1e-5) > split_epsilon(many, 2, 1e-5)
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


def one_sum(parts: list[tuple[float, float]], delta: float) -> float:
    """Epsilon of one sum that each record moves by a distance with a probability, and of the
    reverse, by the trapezoid rule. Noise has deviation 1."""
    x = np.linspace(-30, 60, 40_001)
    places = [(1.0, 0.0)]
    for rate, far in parts:
        kept = [(share * (1 - rate), place) for share, place in places if rate < 1]
        places = kept + [(share * rate, place + far) for share, place in places]
    with_all = sum(share * stats.norm.pdf(x - place) for share, place in places)
    without = stats.norm.pdf(x)

    def loss(epsilon: float) -> float:
        pairs = (with_all, without), (without, with_all)
        return max(float(np.maximum(a - np.exp(epsilon) * b, 0).sum()) for a, b in pairs) * (
            x[1] - x[0]
        )

    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if loss(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("first", "second", "delta"),
    [
        ((1.0, 2.089), (0.04518, 4.994), 4.187e-3),
        ((0.8218, 2.361), (0.07933, 4.367), 5.837e-3),
        ((1.0, 1.381), (0.01825, 3.333), 2.096e-4),
    ],
)
def test_records_of_two_silos_move_one_sum_together(first, second, delta):
    """The observer of a sum sees both under one noise. As releases of their own they would cost
    less, and so would both in either silo."""
    scopes = [
        [(dp.GaussianDpEvent(1 / far), 1)]
        if rate == 1
        else [(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(1 / far)), 1)]
        for rate, far in (first, second)
    ]
    exact = one_sum([first, second], delta)
    assert exact > 1.3 * max(one_sum([first] * 2, delta), one_sum([second] * 2, delta))
    assert exact > 1.3 * split_epsilon(scopes, 2, delta)
    assert exact <= split_epsilon(scopes, 2, delta, one_noise=True) < 1.4 * exact
    worst = dominating([event for [(event, _)] in scopes], 2)
    assert worst is not None
    assert exact <= group_pld([(worst, 1)], 2, delta)


@pytest.mark.parametrize("seed", range(10))
def test_a_dominating_release_bounds_records_of_any_silos(seed):
    rng = np.random.default_rng(seed)
    rates, moved = rng.uniform(0.02, 1, 3), rng.uniform(0.1, 2, 3)
    events = [
        dp.PoissonSampledDpEvent(float(rate), dp.GaussianDpEvent(1 / float(far)))
        for rate, far in zip(rates, moved)
    ]
    silos = rng.integers(0, 3, 3)
    exact = one_sum([(rates[s], moved[s]) for s in silos], 1e-3)
    worst = dominating(events, 3)
    assert worst is not None
    assert exact <= group_pld([(worst, 1)], 3, 1e-3)


def test_without_sampling_no_split_of_one_sum_costs_more_than_the_costliest_silo():
    sigmas = (4.0, 5.0, 8.0)
    scopes = [[(dp.GaussianDpEvent(sigma), 9)] for sigma in sigmas]
    bound = split_epsilon(scopes, 6, 1e-5, one_noise=True)
    worst = gaussian_epsilon(6 / 4.0 * 3)
    assert 0.9 * worst <= bound <= 1.15 * worst


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
        for direction in 12 * split_users.group_divergence(common[0][0], k)
    )
    assert split_epsilon([silo(1000, 1)] * 2, k, delta, everywhere=common) >= alone
