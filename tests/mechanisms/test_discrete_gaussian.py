import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NonPrivateDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from fedpriv.accountants.pld import pld_epsilon
from fedpriv.accountants.rdp import rdp_epsilon
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.grid_noise import whole_steps
from fedpriv.util.streams import SystemGenerator

ENCODING = FixedPoint(32, 3.0, 5)


@pytest.mark.parametrize(
    ("mechanism", "rng"),
    [
        (DiscreteGaussian(0.1, 5.0), np.random.default_rng(0)),
        (DiscreteGaussian(0.1, 5.0), SystemGenerator()),
        (Gaussian(0.1, 5.0), SystemGenerator()),
    ],
)
@pytest.mark.parametrize("shares", [1, 5])
def test_shares_are_whole_steps_and_add_up_to_the_declared_noise(shares, mechanism, rng):
    size = 20_000
    parts = [mechanism.noise_share(size, shares, rng, encoding=ENCODING) for _ in range(shares)]
    for part in parts:
        assert (part / ENCODING.unit == np.rint(part / ENCODING.unit)).all()
    statistic = float((sum(parts) ** 2).sum()) / 0.5**2
    assert min(stats.chi2.cdf(statistic, size), stats.chi2.sf(statistic, size)) > 1e-6


def test_noise_is_never_less_than_declared():
    for declared in (8.0, 8.7, 1e3 + 0.3, 2.0**30):
        assert whole_steps(declared) ** 2 >= declared**2 + 4 * (
            declared < 1e6
        )  # 4 is below a float's precision there
    assert whole_steps(8.0) == 9
    assert whole_steps(0.0) == 0


def likely(steps, reach=800):
    """Probabilities of the discrete Gaussian on -reach .. reach."""
    k = np.arange(-reach, reach + 1)
    weights = np.exp(-(k**2) / (2 * steps**2))
    return weights / weights.sum()


def hockey_stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def gaussian_curve(epsilons, gap, rate):
    """delta of (1 - rate) N(0, 1) + rate N(gap, 1) against N(0, 1), and the reverse, by
    quadrature.
    """
    x = np.linspace(-14, 14 + gap, 100_001)
    base = stats.norm.pdf(x) * (x[1] - x[0])
    mixed = (1 - rate) * base + rate * stats.norm.pdf(x - gap) * (x[1] - x[0])
    return [(hockey_stick(mixed, base, e), hockey_stick(base, mixed, e)) for e in epsilons]


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("moved", [1, 8, 23])
def test_no_test_tells_integer_noise_apart_better_than_the_gaussian_it_is_accounted_as(rate, moved):
    """Exact sums over the integers, both directions; of two shares that the observer knows one, or
    none."""
    declared, epsilons = 8.0, np.linspace(0, 6, 31)
    one = likely(math.hypot(declared, 2.0))
    for shares, noise in ((1, one), (2, np.convolve(one, one, mode="same"))):
        there = (1 - rate) * noise + rate * np.roll(noise, moved)
        for epsilon, bounds in zip(
            epsilons,
            gaussian_curve(epsilons, moved / (declared * math.sqrt(shares)), rate),
            strict=True,
        ):
            for exact, bound in zip(
                (hockey_stick(there, noise, epsilon), hockey_stick(noise, there, epsilon)), bounds
            ):
                assert exact <= bound * (1 + 1e-6) + 1e-12


@pytest.mark.parametrize("moved", [(6, 5), (3, -7)])
def test_nor_in_two_dimensions(moved):
    line, rate, epsilons = likely(math.hypot(8.0, 2.0), 120), 0.3, np.linspace(0, 3, 31)
    noise = np.outer(line, line)
    there = (1 - rate) * noise + rate * np.roll(noise, moved, (0, 1))
    for epsilon, bounds in zip(
        epsilons, gaussian_curve(epsilons, math.hypot(*moved) / 8.0, rate), strict=True
    ):
        assert hockey_stick(there, noise, epsilon) <= bounds[0] * (1 + 1e-6) + 1e-12
        assert hockey_stick(noise, there, epsilon) <= bounds[1] * (1 + 1e-6) + 1e-12


def test_without_the_extra_deviation_some_test_would():
    noise = likely(8.0)
    epsilons = np.linspace(0, 6, 121)
    exact = np.array([hockey_stick(np.roll(noise, 8), noise, epsilon) for epsilon in epsilons])
    assert (exact > [bound * 1.01 for bound, _ in gaussian_curve(epsilons, 1.0, 1.0)]).any()


@pytest.mark.parametrize("accountant", [rdp_epsilon, pld_epsilon])
def test_sampled_it_is_certified_as_the_sampled_gaussian_is(accountant):
    """On a grid of 200 steps, within 2 % of dp_accounting's lower bound for the exact sampled
    distribution."""
    rate, rounds, delta, declared = 0.1, 100, 1e-5, 200
    sampled = PoissonSampledDpEvent(rate, DiscreteGaussian(1.0, 5.0).event())
    certified = accountant([(sampled, rounds)], "add/remove", delta)
    assert certified == accountant(
        [(PoissonSampledDpEvent(rate, GaussianDpEvent(5.0)), rounds)], "add/remove", delta
    )
    once = pld.from_discrete_gaussian_mechanism(
        whole_steps(declared),
        sensitivity=declared // 5,
        sampling_prob=rate,
        value_discretization_interval=1e-5,
        pessimistic_estimate=False,
    )
    reached = once.self_compose(rounds).get_epsilon_for_delta(delta)
    assert reached <= certified
    if accountant is pld_epsilon:
        assert certified <= 1.02 * reached  # 2.1 times under a bound for any mechanism of this zCDP


@pytest.mark.parametrize("kind", [Gaussian, DiscreteGaussian])
def test_events_follow_sensitivity_and_missing_shares(kind):
    mechanism = kind(1.0, 5.0)
    assert mechanism.event() == GaussianDpEvent(5.0)
    assert mechanism.event(sensitivity=2) == GaussianDpEvent(2.5)
    # ALGORITHMS 7.1 KA-2: one of five shares known, and a weight sum of two
    assert mechanism.event(shares=4 / 5).noise_multiplier == pytest.approx(4.472136, 1e-6)
    assert mechanism.event(shares=0) == kind(1.0, 0.0).event() == NonPrivateDpEvent()
    assert kind(1.0, 0.5).event() == GaussianDpEvent(0.5)


@pytest.mark.parametrize("mechanism", [Gaussian, DiscreteGaussian])
def test_a_grid_too_coarse_for_the_noise_is_refused(mechanism):
    coarse = FixedPoint(32, 1e7, 5)
    with pytest.raises(ConfigError, match=r"aggregation\.bits=32: .* grid steps"):
        mechanism(0.1, 1.0).check_encoding(5, coarse)
    mechanism(0.1, 1.0).check_encoding(5, ENCODING)
    mechanism(0.1, 0.0).check_encoding(5, coarse)


def test_it_can_be_told_in_slots_as_far_as_their_precision_goes():
    layout = SlotLayout(512, 20, 20, users=5, silos=2, bound=0.1, noise=10.0)
    DiscreteGaussian(0.1, 5.0).check_encoding(2, SlotEncoding(layout))
    with pytest.raises(ConfigError, match=r"aggregation\.precision=2: too few"):
        DiscreteGaussian(1.0, 1.0).check_encoding(
            2, SlotEncoding(replace(layout, precision=2, bound=1.0))
        )
    with pytest.raises(ConfigError, match=r"aggregation\.precision=55: too many"):
        DiscreteGaussian(0.1, 5.0).check_encoding(2, SlotEncoding(replace(layout, precision=55)))


def test_gradients_cannot_have_integer_noise():
    Gaussian(1.0, 1.0).training_noise()
    with pytest.raises(ConfigError, match="mechanism=discrete_gaussian"):
        DiscreteGaussian(1.0, 1.0).training_noise()


@pytest.mark.parametrize(
    ("mechanism", "rng"),
    [
        (DiscreteGaussian(1.0, 1.0), np.random.default_rng(0)),
        (Gaussian(1.0, 1.0), SystemGenerator()),
    ],
)
def test_without_a_grid_there_is_no_integer_noise(mechanism, rng):
    with pytest.raises(ValueError, match="needs the grid"):
        mechanism.noise_share(3, 1, rng)
    assert not Gaussian(1.0, 0.0).noise_share(3, 1, rng).any()
