"""Mixtures of Gaussians have dp_accounting's own distributions, without its chains of calls."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import PLDPmf, create_pmf_pessimistic_connect_dots_fixed_gap
from dp_accounting.pld.privacy_loss_mechanism import MixtureGaussianPrivacyLoss
from scipy.stats import binom

from fedpriv.accountants import mixture_losses
from fedpriv.accountants.group import group_event
from fedpriv.accountants.mixture_losses import mixture_distribution
from fedpriv.accountants.pld import group_pld

LOG_TAIL = -50.0


def numbers(distribution: pld.PrivacyLossDistribution) -> dict[str, object]:
    """All that the distribution holds, in both directions."""
    held = vars(distribution).items()
    return {name: vars(pmf.to_dense_pmf()) for name, pmf in held if isinstance(pmf, PLDPmf)}


@pytest.mark.parametrize(
    ("size", "rate", "noise", "interval"),
    [
        (8, 0.5, 252.0, 4e-4),
        (2, 0.01, 0.7, 2e-2),
        (3, 1 / 3, 0.3, 0.1),
        (5, 0.001, 1.0, 2e-2),
    ],
)
def test_bits_are_those_of_dp_accounting(
    size: int, rate: float, noise: float, interval: float
) -> None:
    mixture = group_event(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), size)
    assert isinstance(mixture, MixtureOfGaussiansDpEvent)
    ours = mixture_distribution(mixture, interval, LOG_TAIL)
    theirs = pld.from_mixture_gaussian_mechanism(
        mixture.standard_deviation,
        mixture.sensitivities,
        mixture.sampling_probs,
        value_discretization_interval=interval,
        log_mass_truncation_bound=LOG_TAIL,
    )
    assert len(numbers(ours)) == 2
    np.testing.assert_equal(numbers(ours), numbers(theirs))


def test_losses_are_inverted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, a group's distribution takes 70,000 calls, and a target a dozen of them."""
    calls = []
    original = MixtureGaussianPrivacyLoss.privacy_loss

    def counted(self: MixtureGaussianPrivacyLoss, x: float) -> float:
        calls.append(x)
        return float(original(self, x))

    monkeypatch.setattr(MixtureGaussianPrivacyLoss, "privacy_loss", counted)
    event = dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(251.25))
    assert np.isfinite(group_pld([(event, 20)], 8, 1e-5))
    assert len(calls) < 100


def _delta(size: int, rate: float, noise: float, epsilon: float) -> float:
    """delta of one release with a group, against one without, by the trapezoid rule. Losses are far
    smaller than 1, and so are computed without 1."""
    x = np.linspace(-14, 14 + size / noise, 100_001)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    moved = np.arange(1, size + 1)
    shifts = np.expm1(np.multiply.outer(x, moved / noise) - (moved / noise) ** 2 / 2)
    excess = shifts @ binom.pmf(moved, size, rate)  # ratio of the densities, less 1
    return float(np.maximum(excess - np.expm1(epsilon), 0) @ density * (x[1] - x[0]))


@pytest.mark.parametrize(("size", "noise"), [(2, 1.0), (2, 50.0), (8, 5.0)])
def test_small_samples_lose_no_delta(size: int, noise: float) -> None:
    """Losses of 1e-9 are within dp_accounting's tolerance of zero."""
    rate = 1e-9
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise))
    whole = _delta(size, rate, noise, 0.0)
    epsilon = group_pld([(event, 1)], size, whole / 2)
    assert 0 < epsilon < 1e-4
    assert _delta(size, rate, noise, epsilon) <= whole / 2


def test_the_grid_of_a_tiny_sample_is_no_finer_than_its_losses_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def few(interval: float, lowest: int, highest: int, deltas: np.ndarray) -> PLDPmf:
        assert highest - lowest < 10_000
        return create_pmf_pessimistic_connect_dots_fixed_gap(interval, lowest, highest, deltas)

    monkeypatch.setattr(mixture_losses, "create_pmf_pessimistic_connect_dots_fixed_gap", few)
    event = dp.PoissonSampledDpEvent(1e-10, dp.GaussianDpEvent(10.0))
    assert 0 < group_pld([(event, 1)], 5, 1e-8) < 1e-6


@pytest.mark.parametrize(("size", "rate"), [(20, 0.9), (30, 0.75)])
def test_a_group_of_which_somebody_is_sampled_almost_surely(size: int, rate: float) -> None:
    event = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(1.0))
    epsilon = group_pld([(event, 10)], size, 1e-5)
    assert epsilon < group_pld([(event.event, 10)], size, 1e-5)
