import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch
from dp_accounting import NonPrivateDpEvent
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.encoding.base import LEAST_STEPS
from fedpriv.encoding.fixed_point import UNBOUNDED_RANGE, FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import MOST_STEPS, TAIL, Gaussian
from fedpriv.mechanisms.none import NoMechanism


@given(st.integers(0, 2**31), st.floats(1e-3, 1e3), st.integers(1, 5))
def test_rows_end_within_the_bound_and_keep_their_direction(seed, clip, rows):
    vectors = torch.randn(rows, 7, generator=torch.Generator().manual_seed(seed)) * 10
    bounded, norms = Gaussian(clip, 1.0).bound(vectors)
    assert (bounded.norm(dim=1) <= clip * (1 + 1e-12)).all()
    torch.testing.assert_close(norms, vectors.double().norm(dim=1))
    torch.testing.assert_close(bounded * (norms / norms.clamp_max(clip))[:, None], vectors.double())


def test_zero_and_non_finite_rows_pass_through():
    bounded, norms = Gaussian(1.0, 1.0).bound(
        torch.tensor([[0.0, 0.0], [math.nan, 1.0], [math.inf, 0.0]])
    )
    assert (bounded[0] == 0).all()
    assert not norms[1:].isfinite().any()


@pytest.mark.parametrize("shares", [1, 2, 5, 50])
def test_shares_add_up_to_the_declared_noise(shares):
    sigma, clip, size = 5.0, 0.1, 20_000
    mechanism = Gaussian(clip, sigma)
    total = sum(
        mechanism.noise_share(size, shares, np.random.default_rng(s)) for s in range(shares)
    )
    assert mechanism.event().noise_multiplier == sigma
    statistic = float((total**2).sum()) / (sigma * clip) ** 2
    assert min(stats.chi2.cdf(statistic, size), stats.chi2.sf(statistic, size)) > 1e-6
    assert stats.kstest(total / (sigma * clip), "norm").pvalue > 1e-6


@pytest.mark.parametrize(
    ("clip", "sigma"), [(0, 1), (-1, 1), (math.inf, 1), (math.nan, 1), (1, -1), (1, math.inf)]
)
def test_impossible_values_are_refused(clip, sigma):
    with pytest.raises(ConfigError, match=r"algo\.(clip|noise_multiplier)="):
        Gaussian(clip, sigma)


@pytest.mark.parametrize("mechanism", [Gaussian, DiscreteGaussian])
def test_clip_and_noise_have_no_defaults_and_do_not_change(mechanism):
    for missing in ({}, {"clip": 1.0}, {"noise_multiplier": 1.0}):
        with pytest.raises(TypeError, match="required"):
            mechanism(**missing)
    one = mechanism(0.1, 5.0)
    with pytest.raises(FrozenInstanceError):
        one.clip = 2.0
    assert (one.clip, one.noise_multiplier, one.clips) == (0.1, 5.0, True)
    assert one.with_noise(7.5) == mechanism(0.1, 7.5)
    assert one == mechanism(0.1, 5.0)
    with pytest.raises(ConfigError, match=r"algo\.noise_multiplier=-1"):
        one.with_noise(-1)


def test_without_a_mechanism_there_is_no_noise_to_set():
    assert (NoMechanism().clip, NoMechanism().noise_multiplier, NoMechanism().clips) == (
        math.inf,
        0.0,
        False,
    )
    with pytest.raises(ConfigError, match=r"mechanism=none: .* to set it to 2"):
        NoMechanism().with_noise(2.0)


def test_no_mechanism_changes_nothing_and_certifies_nothing():
    vectors = torch.tensor([[3.0, 4.0]])
    bounded, norms = NoMechanism().bound(vectors)
    assert bounded.tolist() == [[3.0, 4.0]]
    assert norms.tolist() == [5.0]
    assert not NoMechanism().noise_share(3, 2, np.random.default_rng(0)).any()
    total = NoMechanism().training_noise().add(np.ones(3), np.random.default_rng(0))
    assert total.tolist() == [1.0, 1.0, 1.0]
    assert NoMechanism().event() == NonPrivateDpEvent()


def test_what_rounding_moves_a_sum_is_told_in_clip_bounds():
    """A sensitivity is one bound plus this: too small a number is noise for less than what one unit
    moves."""
    encoding = FixedPoint(32, 1.0, 3)
    assert Gaussian(0.25, 5.0).rounding(encoding, 9) == 4 * encoding.shift(9) > 0
    assert Gaussian(0.25, 5.0).rounding(None, 9) == 0


def test_a_share_is_made_for_one_bound_unless_told_otherwise():
    one = Gaussian(0.5, 3.0)
    assert one.share_deviation(1) == one.share_deviation(4, 2.0) == 1.5
    assert one.noise_bound(1) == 16 * 1.5
    assert one.training_noise().deviation == 1.5
    assert one.training_noise(3.0).deviation == 4.5
    assert NoMechanism().noise_bound(1) == 0
    seen = one.training_noise().add(np.zeros(4), np.random.default_rng(0))
    np.testing.assert_array_equal(seen, one.noise_share(4, 1, np.random.default_rng(0)))


@pytest.mark.parametrize("mechanism", [Gaussian(0.5, 3.0), Gaussian(2.0, 0.0), NoMechanism()])
def test_simulated_noise_is_as_many_gaussian_numbers_times_what_is_told(mechanism):
    total = np.linspace(-1, 1, 6)
    for sensitivity in (1.0, 0.2):
        rng, again = np.random.default_rng(5), np.random.default_rng(5)
        own = mechanism.training_noise(sensitivity)
        expected = total + own.deviation * again.standard_normal(6)
        np.testing.assert_array_equal(own.add(total, rng), expected)


def test_real_noise_keeps_the_range_that_messages_have():
    """A wider one makes the grid coarser for nothing; an unbounded message has no grid of its
    own.
    """
    encoding = Gaussian(1.0, 5.0).encoding(3, 0.3, real=True)
    assert encoding == FixedPoint(64, 0.3, 3)
    assert Gaussian(1.0, 5.0).encoding(3, math.inf, real=True) == FixedPoint(64, UNBOUNDED_RANGE, 3)
    assert Gaussian(1.0, 0.0).encoding(3, 0.3, real=True) is None
    assert Gaussian(1.0, 5.0).encoding(3, 0.3) is None
    assert DiscreteGaussian(1.0, 5.0).encoding(3, 0.3) == FixedPoint(64, 0.3, 3)
    unbounded = DiscreteGaussian(1.0, 5.0).encoding(3, math.inf, real=True)
    assert unbounded == FixedPoint(64, UNBOUNDED_RANGE, 3)
    assert NoMechanism().encoding(3, 0.3, real=True) is None


def test_a_grid_must_neither_show_nor_lose_the_steps_of_a_share():
    """At the least and the most number of steps themselves, and beyond; both are what the proofs
    take for granted: 2^54 exp(-pi^2 s^2) below 1e-250 (`fixed_point`), and exact float64s within
    the tail."""
    assert 54 * math.log(2) - math.pi**2 * LEAST_STEPS**2 < -250 * math.log(10)
    assert MOST_STEPS * TAIL == 2**53
    encoding = FixedPoint(64, 1.0, 4)
    for steps, refused in ((LEAST_STEPS, "aggregation.bits"), (MOST_STEPS, "aggregation.range")):
        mechanism = Gaussian(2.0, steps * encoding.unit / 2.0)
        mechanism.check_encoding(1, encoding)
        mechanism.check_encoding(4, encoding, 2.0)
        beyond = (4, 1.0) if steps == LEAST_STEPS else (1, 2.0)
        with pytest.raises(ConfigError, match=refused):
            mechanism.check_encoding(beyond[0], encoding, beyond[1])
    Gaussian(2.0, 0.0).check_encoding(1, encoding)
    Gaussian(1e-30, 1.0).check_encoding(1, None)
