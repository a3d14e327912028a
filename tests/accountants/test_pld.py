"""PLD against the closed form, dp_accounting, an FFT of our own and a simulation."""

from __future__ import annotations

import math

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from accounting_oracles import gaussian_epsilon, sampled_epsilon
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent

from fedpriv.accountants import pld as module
from fedpriv.accountants.events import ADD_REMOVE, REPLACE
from fedpriv.accountants.pld import Pld


def release(q: float, sigma: float) -> dp.DpEvent:
    return dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma))


def pld(event: dp.DpEvent, rounds: int, adjacency: str = ADD_REMOVE, **settings: float) -> float:
    return Pld(**settings).epsilons([(event, rounds)], adjacency)["pld"]


# Golden: exact Gaussian by bisection, delta 1e-5 (sigma, rounds, epsilon, tolerance).
EXACT = [
    (5.0, 1, 0.72552, 1e-4),
    (5.0, 50, 6.57297, 1e-4),
    (5.0, 100, 9.99726, 1e-4),
    (5.0, 200, 15.45616, 1e-4),
    (2.5, 50, 15.456, 1e-3),  # ULDP-NAIVE with its true sensitivity 2CS
    (2.5, 100, 24.382, 1e-3),
    (2.5, 200, 39.383, 1e-3),
    (5 * 0.8**0.5, 100, 11.480, 1e-3),  # one of five noise shares missing
    (5 * 0.2**0.5, 100, 28.37, 1e-2),  # four of five
    (5.0, 5000, 159.4, 5e-2),  # a shuffled loader: one full release an epoch
]


@pytest.mark.parametrize(("sigma", "rounds", "epsilon", "tolerance"), EXACT)
def test_golden_gaussian(sigma, rounds, epsilon, tolerance):
    assert pld(dp.GaussianDpEvent(sigma), rounds) == pytest.approx(epsilon, abs=tolerance)
    assert gaussian_epsilon(math.sqrt(rounds) / sigma) == pytest.approx(epsilon, abs=tolerance)
    assert pld(dp.GaussianDpEvent(sigma), rounds, REPLACE) == pld(dp.GaussianDpEvent(sigma), rounds)


# Golden: connect-the-dots PLD, delta 1e-5 (q, sigma, rounds, epsilon, tolerance, step of our own
# FFT).
SAMPLED = [
    (0.1, 5.0, 100, 0.7583, 2e-3, 2e-5),
    (0.7, 5.0, 100, 6.5912, 2e-3, 1e-4),
    (0.5, 5.0, 200, 6.7012, 2e-3, 1e-4),
    (0.01, 5.0, 100_000, 2.6275, 2e-3, 5e-5),
    (1 / 8, 5.0, 20_000, 20.957, 0.1, 1e-4),  # ULDP-GROUP: heart and mnist silos
    (1 / 169, 5.0, 1_690_000, 7.363, 0.04, 5e-5),
]


@pytest.mark.parametrize(("q", "sigma", "rounds", "epsilon", "tolerance", "step"), SAMPLED)
def test_golden_sampled(q, sigma, rounds, epsilon, tolerance, step):
    ours, second = pld(release(q, sigma), rounds), sampled_epsilon(q, sigma, rounds, step)
    assert ours == pytest.approx(epsilon, abs=tolerance)
    assert second == pytest.approx(epsilon, abs=tolerance)
    assert second - 1e-5 <= ours <= second * 1.001  # above it, by the width of the chords


@pytest.mark.parametrize(
    ("sigma", "rounds"), [(0.5, 1), (5.0, 100), (5.0, 10_000), (50.0, 100_000), (2000.0, 1)]
)
def test_discretised_compositions_stay_above_the_closed_form(sigma, rounds):
    one = (MixtureOfGaussiansDpEvent(sigma, (1.0,), (1.0,)), rounds)
    from fedpriv.accountants.pld import distribution, grid_interval, repeated, smallest_epsilon

    interval = grid_interval(dict([one]), 1e-4)
    discretised = smallest_epsilon(repeated(distribution(one[0], interval), rounds), 1e-5)
    exact = (
        gaussian_epsilon(math.sqrt(rounds) / sigma) if math.sqrt(rounds) / sigma < 30 else pld(*one)
    )
    assert exact * (1 - 1e-9) <= discretised <= exact * 1.0005
    assert pld(*one) <= discretised  # the closed form caps it


def test_whole_and_sampled_releases_compose_to_what_dp_accounting_finds():
    runs = [(dp.GaussianDpEvent(5.0), 10), (release(0.1, 2.0), 50)]
    oracle = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    for event, count in runs:
        oracle.compose(event, count)
    together = Pld().epsilons(runs, ADD_REMOVE)["pld"]
    assert together == pytest.approx(oracle.get_epsilon(1e-5), abs=2e-3)
    assert together > max(Pld().epsilons([run], ADD_REMOVE)["pld"] for run in runs) + 0.1


def test_sampling_costs_no_more_than_none_however_coarse_the_interval():
    for count in (1, 100):
        whole = gaussian_epsilon(math.sqrt(count) / 5)
        coarse = pld(release(0.9999, 5.0), count, value_discretization_interval=1.0)
        assert coarse == pytest.approx(whole, rel=1e-9)  # more by rounding to the interval


@pytest.mark.parametrize("count", [9_999, 10_000, 10_001, 10_003])
def test_long_runs_are_composed_in_pairs(count):
    from dp_accounting.pld import privacy_loss_distribution

    once = privacy_loss_distribution.from_randomized_response(
        0.995, 2, value_discretization_interval=1e-3
    )
    found, expected = module.repeated(once, count), once.self_compose(count)
    assert found.get_delta_for_epsilon(1.0) == pytest.approx(
        expected.get_delta_for_epsilon(1.0), rel=1e-6
    )
    assert found.get_delta_for_epsilon(1.0) != pytest.approx(
        once.self_compose(count - 1).get_delta_for_epsilon(1.0), rel=1e-6
    )


def test_ends_of_the_scale():
    assert pld(release(0.5, 0.3), 100_000) == pytest.approx(225_490, rel=1e-3)
    assert pld(release(1e-3, 200.0), 1) == 0.0
    assert pld(release(1 - 1e-9, 5.0), 100) <= pld(dp.GaussianDpEvent(5.0), 100)
    # a delta below the mass that the truncation gives up: sampling brings nothing, and the closed
    # form still answers
    assert (
        pld(release(0.1, 5.0), 100_000, delta=1e-16)
        == pld(dp.GaussianDpEvent(5.0), 100_000, delta=1e-16)
        < 2600
    )


def test_gaussian_epsilons_are_the_librarys_and_never_below_the_exact_ones():
    """mpmath says what is exact, as far as the logarithms of floats do: to 1e-15."""
    from dp_accounting import get_epsilon_gaussian

    rng = np.random.default_rng(0)
    with np.errstate(divide="ignore"), mpmath.workdps(40):
        for gap, delta in zip(10 ** rng.uniform(-6, 3, 100), 10 ** rng.uniform(-12, -0.1, 100)):
            found = module.gaussian_epsilon(gap, delta)
            size = max(1.0, found)
            assert abs(found - float(get_epsilon_gaussian(1 / gap, delta))) <= 2e-12 * size
            above, below = found + 1e-14 * size, found - 3e-13 * size
            assert _gaussian_delta(gap, above) <= delta
            assert not found or _gaussian_delta(gap, below) > delta
    assert module.gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert module.gaussian_epsilon(0.0, 1e-5) == 0.0
    assert module.gaussian_epsilon(1e-310, 1e-5) == 0.0  # its noise is beyond the largest float
    assert module.gaussian_epsilon(1e-17, 1e-5) == 0.0  # both chances are the same float


def _gaussian_delta(gap, epsilon):
    """Balle and Wang's Theorem 8."""
    gap, epsilon = mpmath.mpf(gap), mpmath.mpf(epsilon)
    middle = epsilon / gap
    below = mpmath.exp(epsilon) * mpmath.ncdf(-middle - gap / 2)
    return mpmath.ncdf(gap / 2 - middle) - below


@pytest.mark.parametrize("x", [-60.0, -38.0, -37.0, -10.0, -1.0, -1e-9, 0.0, 1e-9, 3.0, 9.0])
def test_the_chance_of_a_normal_number_keeps_its_digits(x):
    with mpmath.workdps(400):
        exact = mpmath.log(mpmath.ncdf(x))
        assert abs(mpmath.mpf(module.log_normal(x)) / exact - 1) < 1e-14


@pytest.mark.parametrize("sigma", [0.5, 5.0])
def test_a_shift_of_two_is_half_the_noise(sigma):
    twice = MixtureOfGaussiansDpEvent(sigma, (2.0,), (1.0,))
    assert pld(twice, 4) == pytest.approx(gaussian_epsilon(2 * 2 / sigma), rel=1e-4)
    both = [(twice, 4), (release(0.1, 5.0), 3)]
    assert Pld().epsilons(both, ADD_REMOVE)["pld"] > gaussian_epsilon(2 * 2 / sigma)
