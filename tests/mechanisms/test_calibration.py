"""Noise for a given epsilon, against arithmetic with 50 digits."""

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

from fedpriv.accountants.pld import RdpAndPld
from fedpriv.mechanisms.calibration import composed_noise, gaussian_noise, zcdp_noise

POINTS = [(0.1, 1e-5), (1.0, 1e-5), (1.0, 1e-9), (8.0, 1e-3), (30.0, 1e-6)]


def delta_of(gap, epsilon):
    """Balle, Wang, ICML 2018, Theorem 8, of two Gaussians that are `gap` standard deviations
    apart.
    """
    with mpmath.workdps(50):
        gap, epsilon = mpmath.mpf(gap), mpmath.mpf(epsilon)
        return mpmath.ncdf(gap / 2 - epsilon / gap) - mpmath.exp(epsilon) * mpmath.ncdf(
            -gap / 2 - epsilon / gap
        )


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
@pytest.mark.parametrize("mean_gap", [0.3, 1.0, 17.0])
def test_the_noise_is_enough_and_hardly_more(epsilon, delta, mean_gap):
    """Never too little, not by the last digits either: the root that dp_accounting finds may lie on
    either side."""
    noise = gaussian_noise(mean_gap, epsilon, delta)
    assert delta_of(mpmath.mpf(mean_gap) / mpmath.mpf(noise), epsilon) <= delta
    assert delta_of(mpmath.mpf(mean_gap) / mpmath.mpf(noise * (1 - 1e-9)), epsilon) > delta


@pytest.mark.parametrize(("epsilon", "delta"), POINTS)
def test_zcdp_noise_turns_rho_into_epsilon(epsilon, delta):
    """Noise z makes rho / z^2 of a formula that gives rho at 1 (Bun, Steinke 2016, Proposition
    1.3)."""
    rho = 3.7 / zcdp_noise(3.7, epsilon, delta) ** 2
    assert rho + 2 * mpmath.sqrt(rho * mpmath.log(1 / delta)) == pytest.approx(epsilon, rel=1e-12)


def sampled(rate, factor):
    return [(PoissonSampledDpEvent(rate, GaussianDpEvent(factor)), 5)]


def spent(composition):
    return min(RdpAndPld(1e-5).epsilons(composition, "add/remove").values())


def test_of_several_compositions_the_costliest_keeps_the_budget():
    """Silos of other sizes sample at other rates, before and after it."""
    factor = composed_noise(
        lambda f: [sampled(q, f) for q in (0.05, 0.3, 0.05)], "add/remove", 1.0, 1e-5
    )
    assert 0.998 <= spent(sampled(0.3, factor)) <= 1.0
    assert spent(sampled(0.05, factor)) < 0.5


def test_plain_gaussians_are_solved_exactly_and_sampled_ones_beside_them_are_not():
    whole = composed_noise(lambda f: [[(GaussianDpEvent(f), 1)]], "add/remove", 1.0, 1e-5)
    assert whole == gaussian_noise(1.0, 1.0, 1e-5)
    both = composed_noise(
        lambda f: [[(GaussianDpEvent(f), 1)], sampled(0.9, f)], "add/remove", 1.0, 1e-5
    )
    assert both > 1.5 * whole
    assert spent(sampled(0.9, both)) <= 1.0
