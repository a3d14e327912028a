import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import NonPrivateDpEvent, ZCDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.rdp import rdp_epsilon
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.encoding.slot_layout import SlotLayout
from fedpriv.encoding.slots import SlotEncoding
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.streams import Streams

ENCODING = FixedPoint(32, 3.0, 5)


@pytest.mark.parametrize("rng", [np.random.default_rng(0), Streams(0, system=True).secret("noise", 1)])
@pytest.mark.parametrize("shares", [1, 5])
def test_shares_are_whole_steps_and_add_up_to_the_declared_noise(shares, rng):
    mechanism, size = DiscreteGaussian(0.1, 5.0), 20_000
    parts = [mechanism.noise_share(size, shares, rng, encoding=ENCODING) for _ in range(shares)]
    for part in parts:
        assert (part / ENCODING.unit == np.rint(part / ENCODING.unit)).all()
    statistic = float((sum(parts) ** 2).sum()) / 0.5**2
    assert min(stats.chi2.cdf(statistic, size), stats.chi2.sf(statistic, size)) > 1e-6


def test_noise_is_never_less_than_declared():
    for sigma in (1.0, 1.7, 5.3):
        mechanism = DiscreteGaussian(0.1, sigma)
        steps = math.ceil(mechanism.share_deviation(3) / ENCODING.unit)
        assert steps * ENCODING.unit >= mechanism.share_deviation(3)


def test_a_sum_has_the_exact_probabilities_of_summed_integer_noise():
    """Shares of 9 steps: the sum of two against the convolution of their probabilities."""
    mechanism, unit = DiscreteGaussian(1.0, 9 * math.sqrt(2) * ENCODING.unit), ENCODING.unit
    rng = np.random.default_rng(1)
    total = sum(mechanism.noise_share(200_000, 2, rng, encoding=ENCODING) for _ in range(2)) / unit
    k = np.arange(-200, 201)
    one = np.exp(-(k**2) / (2 * 81.0))
    two = np.convolve(one / one.sum(), one / one.sum(), mode="same")
    inside = np.abs(k) <= 45
    counts = np.array([(total == value).sum() for value in k[inside]])
    expected = two[inside] * 200_000
    assert stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-6


def test_its_certificate_covers_the_exact_one_in_one_dimension():
    """dp_accounting's distribution of the one-dimensional discrete Gaussian, 20 releases at sensitivity 1."""
    sigma, rounds, delta = 30, 20, 1e-5
    exact = pld.from_discrete_gaussian_mechanism(sigma).self_compose(rounds).get_epsilon_for_delta(delta)
    event = DiscreteGaussian(1.0, sigma).event()
    certified = rdp_epsilon([(event, rounds)], "add/remove", delta)
    assert exact <= certified <= 1.2 * exact
    # at 30 steps it is as good as the continuous Gaussian
    assert exact == pytest.approx(gaussian_epsilon(math.sqrt(rounds) / sigma, delta), rel=5e-3)


def test_events_follow_sensitivity_and_missing_shares():
    mechanism = DiscreteGaussian(1.0, 5.0)
    assert mechanism.event() == ZCDpEvent(0.02)
    assert mechanism.event(sensitivity=2).rho == pytest.approx(0.08)
    assert mechanism.event(shares=4 / 5).rho == pytest.approx(0.025)
    assert mechanism.event(shares=0) == DiscreteGaussian(1.0, 0.0).event() == NonPrivateDpEvent()


@pytest.mark.parametrize("mechanism", [Gaussian, DiscreteGaussian])
def test_a_grid_too_coarse_for_the_noise_is_refused(mechanism):
    coarse = FixedPoint(32, 1e7, 5)
    with pytest.raises(ConfigError, match=r"aggregation\.bits=32: .* grid steps"):
        mechanism(0.1, 1.0).check_encoding(5, coarse)
    mechanism(0.1, 1.0).check_encoding(5, ENCODING)
    mechanism(0.1, 0.0).check_encoding(5, coarse)


def test_a_grid_too_fine_for_the_sampler_is_refused():
    with pytest.raises(ConfigError, match=r"aggregation\.range=1e-12"):
        DiscreteGaussian(100.0, 50.0).check_encoding(1, FixedPoint(64, 1e-12, 1))


def test_it_can_be_told_in_slots_as_far_as_their_precision_goes():
    layout = SlotLayout(512, 20, 20, users=5, silos=2, bound=0.1, noise=10.0)
    DiscreteGaussian(0.1, 5.0).check_encoding(2, SlotEncoding(layout))
    with pytest.raises(ConfigError, match=r"aggregation\.precision=2: too few"):
        DiscreteGaussian(1.0, 1.0).check_encoding(2, SlotEncoding(replace(layout, precision=2, bound=1.0)))
    with pytest.raises(ConfigError, match=r"aggregation\.precision=55: too many"):
        DiscreteGaussian(0.1, 5.0).check_encoding(2, SlotEncoding(replace(layout, precision=55)))


def test_gradients_cannot_have_integer_noise():
    Gaussian(1.0, 1.0).check_inside_training()
    with pytest.raises(ConfigError, match="mechanism=discrete_gaussian"):
        DiscreteGaussian(1.0, 1.0).check_inside_training()


def test_without_a_grid_there_is_no_integer_noise():
    with pytest.raises(ValueError, match="grid"):
        DiscreteGaussian(1.0, 1.0).noise_share(3, 1, np.random.default_rng(0))
