import math

import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent
from exact_binomial import epsilon_of_one, shifted_epsilon

from fedpriv.accountants.pld import gaussian_epsilon, pld_epsilon
from fedpriv.accountants.shifted_binomial import gaussian_gap
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.binomial import Binomial
from fedpriv.mechanisms.calibration import gaussian_noise
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.lowy import ShuffleBudget, paper_bits, paper_levels
from fedpriv.mechanisms.none import NoMechanism
from fedpriv.util.streams import SystemGenerator


def cost(mechanism, size, delta, shares=1.0):
    """Epsilon of one release when a record is replaced."""
    encoding = mechanism.count_encoding(1)
    event = mechanism.event(sensitivity=2 + mechanism.rounding(encoding, size), shares=shares)
    return pld_epsilon([(event, 1)], "replace", delta)


@pytest.mark.parametrize(
    ("size", "epsilon", "delta", "contributions"),
    [
        (1, 0.75, 1e-5, 100_000),
        (10, 3.0, 1e-5, 100),
        (100, 0.75, 1e-5, 100),
        (1, 18.0, 6.5e-7, 100),
        (100, 18.0, 6.5e-7, 100_000),
    ],
)
def test_calibrated_noise_costs_the_target_within_two_percent(size, epsilon, delta, contributions):
    """The true epsilon lies between that of a record that moves one coordinate through all levels,
    exactly, and the certificate. The number of contributions only rounds the noise up to whole bits
    of each."""
    mechanism = Binomial(1.0, 1.0).with_gaussian_cost(gaussian_noise(1.0, epsilon, delta), size)
    bits = math.ceil(mechanism.trials / contributions)
    certified, trials = cost(mechanism, size, delta), bits * contributions
    assert certified <= epsilon * (1 + 1e-6)
    assert epsilon_of_one(trials, mechanism.levels, delta) >= 0.98 * epsilon


def test_a_shift_spread_over_a_hundred_coordinates_stays_below_the_certificate():
    mechanism = Binomial(1.0, 1.0, levels=1000).with_gaussian_cost(
        gaussian_noise(1.0, 1.0, 1e-5), 100
    )
    true = shifted_epsilon(mechanism.trials, {100: 50, -100: 50}, 1e-5, interval=1e-4)
    assert 0.95 <= true <= cost(mechanism, 100, 1e-5) <= 1 + 1e-6


def test_few_levels_in_many_coordinates_cost_no_more_noise_than_they_must():
    """Rounding moves each of a hundred coordinates of a sum by up to a level, beside 64 of the
    record itself."""
    mechanism = Binomial(1.0, 1.0, levels=64).with_gaussian_cost(
        gaussian_noise(1.0, 1.0, 1e-5), 100
    )
    assert 0.99 <= cost(mechanism, 100, 1e-5) <= 1 + 1e-6


def test_paper_parameters():
    # b of 100 contributions of one coordinate at (1, 1e-6), by the formula: golden. Its epsilon is
    # about 7e-4.
    levels = paper_levels(100, 1)
    assert levels == 20
    assert paper_bits(100, 1, levels=levels, epsilon=1.0, delta=1e-6) == 242_543_523
    mechanism = Binomial(1.0, 0.0).with_bits(levels, 100 * 242_543_523)
    assert mechanism.trials == 24_254_352_300
    gaussian = gaussian_epsilon(20 / math.sqrt(mechanism.trials * 3 / 16), 1e-6)
    assert gaussian == pytest.approx(7e-4, rel=0.05)
    assert gaussian <= cost(mechanism, 1, 1e-6) <= 1.3 * gaussian
    assert paper_levels(10_000, 301) == 302
    assert (paper_levels(50, 1), paper_levels(1, 1)) == (16, 4)
    # Of 30 coordinates, by the formula in its text; at the largest epsilon that the theorem speaks
    # for.
    ratio = math.log(4 * 901 / 1e-6) / math.log(8 / 1e-6)
    single, many = (paper_bits(100, d, levels=30, epsilon=15.0, delta=1e-6) for d in (1, 30))
    assert many / single == pytest.approx(ratio**2, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "delta"), [(16, 1e-6), (0, 1e-6), (1, 0.5), (1, 0.0)])
def test_the_paper_says_nothing_there(epsilon, delta):
    with pytest.raises(ConfigError, match="calibration=paper"):
        paper_bits(100, 1, levels=20, epsilon=epsilon, delta=delta)
    claims = [ShuffleBudget(1, 1, 0.5, half).epsilon(1e9, 30) for half in (0.4, 0.5, 0.6)]
    assert [claim is None for claim in claims] == [False, True, True]


@pytest.mark.parametrize(
    ("kinds", "calls", "chosen"), [(1, 1, 1.0), (1, 1, 0.5), (2, 1, 1.0), (1, 2, 1.0), (2, 25, 0.5)]
)
def test_what_the_paper_leaves_for_one_release(kinds, calls, chosen):
    """Of epsilon 1.5 at 1e-5, by its own chain: kinds share, calls compose by Dwork and Roth's
    Theorem 3.20 with half of a kind's delta for the composition, and a choice of silos divides by 2
    M / N."""
    budget = ShuffleBudget(kinds, calls, chosen, 1e-5)
    eps, delta = 1.5 / kinds, 1e-5 / kinds
    if calls > 1:
        eps, delta = eps / (2 * math.sqrt(2 * calls * math.log(2 / delta))), delta / 2 / calls
    assert budget.call_epsilon * 1.5 == pytest.approx(eps / (2 * chosen))
    assert budget.call_delta == pytest.approx(delta / (2 * chosen))
    levels, bits = budget.noise(1000, 30, 6.0)
    assert budget.epsilon(
        Binomial(1.0, 0.0).with_bits(levels, bits).noise_multiplier, 30
    ) == pytest.approx(6)
    assert budget.epsilon(1e-3, 30) is None
    assert budget.epsilon(0.0, 30) is None
    with pytest.raises(ConfigError, match=r"algo\.calibration=paper: certified, or a larger"):
        budget.noise(1000, 10_000, 1e-3)


@pytest.mark.parametrize(
    "rng", [np.random.default_rng(0), SystemGenerator()], ids=["seeded", "system"]
)
@pytest.mark.parametrize("silent", [0.0, 0.4])
def test_shares_of_silos_that_noise_add_up_to_the_declared_noise(rng, silent):
    mechanism = Binomial(0.1, 8.0, levels=256, silent=silent)
    encoding = mechanism.count_encoding(5)
    shares = [mechanism.noise_share(20_000, 5, rng, encoding=encoding) for _ in range(5)]
    noisy = sum(shares[: 3 if silent else 5])
    assert noisy.var() / (0.8**2) == pytest.approx(1, abs=0.06)
    assert abs(noisy.mean()) < 5 * 0.8 / math.sqrt(20_000)
    steps = noisy / encoding.unit
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-6)


def test_a_part_of_a_bit_hides_nothing():
    """Whoever knows half of the noise, where a quarter of the silos may be silent, is left with a
    third of the bits."""
    mechanism = Binomial(1.0, 0.0, silent=0.25).with_bits(2, 100_000)
    assert mechanism.event(shares=0.5) == GaussianDpEvent(1 / gaussian_gap(33_333, 1.0))
    assert mechanism.event(sensitivity=0.0) == NonPrivateDpEvent()


def test_events_count_what_an_observer_cannot_subtract():
    full = Binomial(1.0, 10.0).event(sensitivity=2.0)
    assert isinstance(full, GaussianDpEvent)
    assert 0.99 * 5 < full.noise_multiplier < 5
    part = Binomial(1.0, 10.0).event(sensitivity=2.0, shares=0.25)
    assert 0.98 * 2.5 < part.noise_multiplier < 2.5
    # 4 of 10 shares, of which 2 may be none: a quarter of the eight that are there at least.
    silent = Binomial(1.0, 10.0, silent=0.2).event(sensitivity=2.0, shares=0.4)
    assert silent.noise_multiplier == part.noise_multiplier
    assert Binomial(1.0, 10.0, silent=0.2).event(shares=0.1) == NonPrivateDpEvent()
    assert Binomial(1.0, 0.0).event() == NonPrivateDpEvent()
    assert Binomial(1.0, 0.01).event() == NonPrivateDpEvent()


def test_contributions_are_clipped_as_elsewhere():
    vectors = torch.randn(5, 7) * 10
    for one, other in zip(Binomial(2.0, 1.0).bound(vectors), Gaussian(2.0, 1.0).bound(vectors)):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "encoding", [None, FixedPoint(64, 100.0, 3), Binomial(2.0, 1.0).count_encoding(3)], ids=str
)
def test_only_counts_are_noised(encoding):
    mechanism, rng = Binomial(1.0, 1.0), np.random.default_rng(0)
    with pytest.raises(ConfigError, match="aggregation=shuffle"):
        mechanism.noise_share(2, 3, rng, encoding=encoding)
    with pytest.raises(ConfigError, match="aggregation=shuffle"):
        mechanism.encoding(3, 1.0)
    with pytest.raises(ConfigError, match="in training"):
        mechanism.training_noise()


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ((0.0, 1.0), "clip"),
        ((math.inf, 1.0), "finite"),
        ((1.0, math.inf), "finite"),
        ((1.0, -1.0), "noise"),
        ((1.0, 1.0, 3), "levels"),
        ((1.0, 1.0, 2, 1.0), "silent"),
    ],
)
def test_impossible_values_are_refused(values, key):
    with pytest.raises(ConfigError, match=key):
        Binomial(*values)
    assert Binomial(1.0, 0.0, levels=2).levels == 2


def test_noise_that_hides_counts_without_the_silent_silos():
    """Whoever knows nothing of the noise may still have to do without that of the silent ones'
    share."""
    target, size = gaussian_noise(1.0, 1.0, 1e-5), 10
    for silent, shares in ((0.3, 1.0), (0.3, 0.5), (0.0, 0.5)):
        mechanism = Binomial(1.0, 1.0, silent=silent).with_gaussian_cost(
            target, size, shares=shares
        )
        assert 0.98 <= cost(mechanism, size, 1e-5, shares=shares) <= 1 + 1e-6
    with pytest.raises(ConfigError, match=r"mechanism\.silent=0\.5"):
        Binomial(1.0, 1.0, silent=0.5).with_gaussian_cost(target, size, shares=0.5)


def test_sensitivities_are_in_units_of_the_clip():
    mechanism = Binomial(1.0, 10.0)
    assert mechanism.event() == mechanism.event(sensitivity=1.0)
    assert mechanism.event().noise_multiplier == pytest.approx(
        2 * mechanism.event(sensitivity=2.0).noise_multiplier, rel=1e-3
    )
    encoding = mechanism.count_encoding(3)
    mechanism.check_encoding(3, encoding)
    with pytest.raises(ConfigError, match="other sensitivities"):
        mechanism.check_encoding(3, encoding, 2.0)


@pytest.mark.parametrize(("clip", "levels"), [(1.0, 4096), (0.1, 256)])
def test_no_share_is_expected_beyond_sixteen_deviations(clip, levels):
    mechanism = Binomial(clip, 8.0, levels=levels)
    deviation = 8.0 * clip / math.sqrt(5)
    assert mechanism.noise_bound(5) == pytest.approx(16 * deviation, rel=1e-3)
    share = mechanism.noise_share(
        20_000, 5, np.random.default_rng(0), encoding=mechanism.count_encoding(5)
    )
    assert 3 * deviation < np.abs(share).max() < mechanism.noise_bound(5)


def test_what_a_certificate_rests_on_is_said():
    mechanism = Binomial(1.0, 1.0)
    assert mechanism.assumptions(None, real=True) == (
        "binomial noise of the operating system's bits",
        "every silo adds its noise",
    )
    seeded, quiet = Binomial(1.0, 1.0, silent=0.25).assumptions(None, real=False)
    assert "numpy" in seeded
    assert quiet == "at most 0.25 of the silos add no noise"


@pytest.mark.parametrize("other", [Gaussian(1.0, 1.0), DiscreteGaussian(1.0, 1.0), NoMechanism()])
def test_other_mechanisms_have_no_bits_to_count(other):
    name = {Gaussian: "gaussian", DiscreteGaussian: "discrete_gaussian", NoMechanism: "none"}
    expected = f"mechanism={name[type(other)]}: binomial: aggregation=shuffle counts bits"
    with pytest.raises(ConfigError, match=expected):
        other.counting()
