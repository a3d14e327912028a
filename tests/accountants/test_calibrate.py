"""Calibration: the answer is within the target, and a slightly bolder one is not."""

from __future__ import annotations

import dp_accounting as dp
import pytest

from fedpriv.accountants.calibrate import most_rounds, smallest_noise
from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.accountants.pld import Pld
from fedpriv.accountants.rdp import Rdp
from fedpriv.errors import ConfigError


def sampled(q: float):
    return lambda noise: dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(noise))


def spent(accountant, event, rounds):
    return min(accountant.epsilons([(event, rounds)], ADD_REMOVE).values())


def noise_multiplier_for(accountant, event, rounds, epsilon):
    return smallest_noise(lambda z: spent(accountant, event(z), rounds), epsilon)


def rounds_for(accountant, event, epsilon):
    return most_rounds(lambda rounds: spent(accountant, event, rounds), epsilon)


CASES = [
    (Rdp(), 1.0, 100, 10.72551),
    (Pld(), 1.0, 100, 9.99726),
    (Pld(), 0.1, 100, 0.7583),
]


@pytest.mark.parametrize(("accountant", "q", "rounds", "epsilon"), CASES)
def test_noise_inverts_the_golden_table(accountant, q, rounds, epsilon):
    noise = noise_multiplier_for(accountant, sampled(q), rounds, epsilon)
    assert noise == pytest.approx(5.0, rel=2e-3)
    enough, little = (spent(accountant, sampled(q)(z), rounds) for z in (noise, noise / 1.001))
    assert enough <= epsilon < little


@pytest.mark.parametrize(("accountant", "q", "rounds", "epsilon"), CASES)
def test_rounds_are_the_most(accountant, q, rounds, epsilon):
    event = sampled(q)(5.0)
    most = rounds_for(accountant, event, epsilon)
    assert most == pytest.approx(rounds, rel=2e-3)
    assert spent(accountant, event, most) <= epsilon < spent(accountant, event, most + 1)


def test_limits():
    assert rounds_for(Rdp(), dp.GaussianDpEvent(0.1), 1.0) == 0
    assert rounds_for(Rdp(), dp.NoOpDpEvent(), 1.0) == 10**7
    assert rounds_for(Rdp(), dp.NonPrivateDpEvent(), 1.0) == 0
    assert rounds_for(Rdp(), dp.GaussianDpEvent(5.0), 0.8) == 1
    assert noise_multiplier_for(Rdp(), lambda noise: dp.NoOpDpEvent(), 1, 1.0) == 1e-3
    with pytest.raises(ConfigError, match="no noise multiplier"):
        noise_multiplier_for(Rdp(), lambda noise: dp.NonPrivateDpEvent(), 1, 1.0)
    with pytest.raises(ConfigError, match="epsilon=0"):
        rounds_for(Rdp(), dp.NoOpDpEvent(), 0)


@pytest.mark.parametrize("search", [smallest_noise, most_rounds])
@pytest.mark.parametrize("epsilon", [-1.0, 0.0])
def test_no_noise_and_no_number_of_rounds_reaches_nothing(search, epsilon):
    with pytest.raises(ConfigError, match="must be above 0"):
        search(lambda at: 1.0, epsilon)


@pytest.mark.parametrize("near", [None, 1, 5, 40, 1000])
def test_rounds_are_counted_exactly_from_any_guess(near):
    for most in range(61):
        assert most_rounds(float, most + 0.5, near=near) == most
        assert most_rounds(float, most + 1.0, near=near) == most + 1
