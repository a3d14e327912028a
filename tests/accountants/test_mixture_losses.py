"""Mixtures of Gaussians have dp_accounting's own distributions, without its chains of calls."""

from __future__ import annotations

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.pld_pmf import PLDPmf
from dp_accounting.pld.privacy_loss_mechanism import MixtureGaussianPrivacyLoss

from fedpriv.accountants.group import group_event
from fedpriv.accountants.mixture_losses import mixture_distribution
from fedpriv.accountants.pld import group_pld

LOG_TAIL = -50.0


def _numbers(pmf: PLDPmf) -> tuple[object, ...]:
    dense = pmf.to_dense_pmf()
    return dense._lower_loss, dense._infinity_mass, dense._probs.tobytes()


@pytest.mark.parametrize(
    ("size", "rate", "noise", "interval"),
    [
        (8, 0.5, 252.0, 4e-4),
        (8, 0.05, 5.0, 2e-3),
        (2, 0.01, 0.7, 2e-2),
        (16, 0.9, 30.0, 8e-3),
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
    assert _numbers(ours._pmf_remove) == _numbers(theirs._pmf_remove)
    assert _numbers(ours._pmf_add) == _numbers(theirs._pmf_add)


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
