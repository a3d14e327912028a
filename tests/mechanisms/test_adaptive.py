"""The bound that follows a quantile: what a contribution becomes, and what it costs."""

import math

import dp_accounting as dp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from fedpriv.errors import ConfigError
from fedpriv.mechanisms.adaptive import Adaptive
from fedpriv.mechanisms.gaussian import Gaussian

positive = st.floats(1e-6, 1e6)
inside = st.floats(0.01, 0.99)


def adaptive(clip=0.5, noise=2.0, quantile=0.5, rate=2.0, share=0.05):
    return Adaptive(clip, noise, quantile, rate, share)


@given(positive, inside, inside, st.floats(1e-9, 1e9), st.lists(positive, min_size=1, max_size=4))
def test_no_bounded_vector_is_longer_than_the_first_bound(clip, quantile, share, factor, lengths):
    """Whatever the round's bound is: a silo's messages never depend on it for their privacy."""
    mechanism = adaptive(clip, quantile=quantile, share=share).at(clip * factor)
    vectors = torch.tensor(lengths, dtype=torch.float64)[:, None] * torch.tensor([[0.6, -0.8]])
    rows, norms = mechanism.bound(vectors)
    assert rows.shape == (len(lengths), 3)
    np.testing.assert_allclose(norms, lengths, rtol=1e-6)
    assert float(torch.linalg.vector_norm(rows, dim=1).max()) <= clip * (1 + 1e-12)


def test_the_bound_is_reached_on_both_sides_of_the_quantile():
    """Else a noise multiplier would promise too little, and the noise be too large."""
    rows, _ = adaptive().at(2.0).bound(torch.tensor([[2.0, 0.0], [0.0, 9.0]], dtype=torch.float64))
    np.testing.assert_allclose(torch.linalg.vector_norm(rows, dim=1), [0.5, 0.5], rtol=1e-12)
    assert rows[0, 2] == -rows[1, 2] > 0


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_one_release_costs_as_much_as_the_papers_two(share):
    """Andrew et al. 2021, section 2.1: noise z_Delta on vectors and sigma_b on bits, whose
    sensitivity is 1/2, with z_Delta = (z^-2 - (2 sigma_b)^-2)^(-1/2)."""
    z, rounds, delta = 5.0, 20, 1e-5
    sigma_b = z / math.sqrt(share) / 2
    z_delta = (z**-2 - (2 * sigma_b) ** -2) ** -0.5
    assert z_delta == pytest.approx(z / math.sqrt(1 - share))
    both = dp.ComposedDpEvent([dp.GaussianDpEvent(z_delta), dp.GaussianDpEvent(2 * sigma_b)])
    expected = dp.pld.PLDAccountant().compose(both, rounds).get_epsilon(delta)
    event = adaptive(noise=z, share=share).event()
    found = dp.pld.PLDAccountant().compose(event, rounds).get_epsilon(delta)
    assert found == pytest.approx(expected, rel=1e-3)
    assert event == Gaussian(0.5, z).event()


def test_sums_of_records_are_marked_as_vectors_are():
    mechanism = adaptive(quantile=0.8).at(3.0)
    vectors = torch.tensor([[1.0, 2.0], [4.0, 5.0], [0.0, 7.0]], dtype=torch.float64)
    rows, norms = mechanism.bound(vectors)
    clipped = vectors * (3.0 / norms.clamp_min(3.0))[:, None]
    np.testing.assert_allclose(mechanism.marked(clipped.sum(0), 1, 2), rows.sum(0), rtol=1e-12)


def test_noise_inside_training_is_that_of_the_message():
    mechanism = adaptive(clip=0.5, noise=2.0, share=0.2).at(4.0)
    in_message = mechanism.marked(torch.ones(1), 0, 0)[0] * mechanism.training_noise().deviation
    assert float(in_message) == pytest.approx(2.0 * 0.5)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("start", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("units", [50, 200])
def test_the_bound_finds_the_quantile(quantile, start, units):
    """Also where the number of contributions, 100, is not what the public estimate says."""
    norms = np.exp(np.random.default_rng(0).normal(size=100))
    vectors = torch.from_numpy(norms)[:, None]
    mechanism = adaptive(start, quantile=quantile)
    for number in range(1, 400):
        rows, _ = mechanism.bound(vectors)
        total, limit = mechanism.read(rows.sum(0).numpy(), units, number)
        np.testing.assert_allclose(total, np.minimum(norms, mechanism.limit).sum(), rtol=1e-9)
        mechanism = mechanism.at(limit)
    low, high = np.quantile(norms, [quantile - 0.05, quantile + 0.05])
    assert low <= mechanism.limit <= high


def test_bounds_stay_within_what_silos_take():
    mechanism = adaptive(clip=1.0, rate=1000.0)
    for mark, end in ((-1.0, 1e9), (1.0, 1e-9)):
        assert mechanism.read(np.array([0.0, mark]), 1.0, 1)[1] == end


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"quantile": 0.0}, "mechanism.quantile=0.0: a number between 0 and 1"),
        ({"quantile": math.nan}, "mechanism.quantile=nan: a number between 0 and 1"),
        ({"share": 1.0}, "mechanism.share=1.0: a number between 0 and 1"),
        ({"rate": -2.0}, "mechanism.rate=-2.0: a positive finite number"),
        ({"rate": math.inf}, "mechanism.rate=inf: a positive finite number"),
        ({"clip": 0.0}, "algo.clip=0.0"),
    ],
)
def test_impossible_settings_are_refused(settings, line):
    refused(lambda: adaptive(**settings), error=ConfigError, start=line)
