from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from fedpriv.papers.hu.theory import Convergence, LogisticRisk, breast_cancer_risk, measure

SETTING = Convergence(
    lr=0.2,
    smoothness=1.0,
    strong_convexity=0.5,
    variance=3.0,
    batch_size=4,
    parameters=10,
    noise=0.1,
    cohort=5,
    local_steps=1,
    iterations=100,
    gap=2.0,
)


@pytest.fixture(scope="module")
def risk():
    return breast_cancer_risk(4, 0.1)


def test_the_printed_bounds_by_hand():
    """Equations (14) and (15) with every term written out."""
    eta, L, lam, var, g, d, s2, r, tau, K, gap = 0.1, 1.0, 0.5, 3.0, 4, 10, 0.01, 5, 3, 100, 2.0
    setting = replace(SETTING, lr=eta, local_steps=tau)
    drift = (tau - 1) * (2 * tau - 1)
    theorem = 2 * gap / (eta * K) + eta * L * var / (2 * g) + eta * L * d * s2 / (2 * r)
    theorem += drift * (
        2 * eta**2 * L**2 * var / (3 * g) + eta**2 * L**2 * d * s2 * (r + 1) / (3 * r)
    )
    assert setting.gradient_bound() == pytest.approx(theorem)
    lemma = (
        (1 - eta * lam) / (K * eta * lam) * gap
        + eta * L * var / (4 * lam * g)
        + eta * L * d * s2 / (4 * r * lam)
    )
    lemma += eta**2 * L**2 * drift * (var / (3 * lam * g) + d * s2 * (r + 1) / (6 * r * lam))
    assert setting.gap_bound() == pytest.approx(lemma)


def test_the_printed_constants_fail_for_a_quadratic():
    """f = theta^2 / 2, one device, one step a round: |grad f|^2 tends to eta sigma^2 / (2 - eta),
    printed is half of eta sigma^2. With the proof's constants the bound holds."""
    setting = replace(
        SETTING, lr=0.15, parameters=1, variance=0.0, cohort=1, noise=1.0, iterations=10**6, gap=0.0
    )
    assert setting.applies
    rng, theta, squares = np.random.default_rng(0), np.zeros(20_000), []
    for _ in range(200):
        theta = theta - 0.15 * (theta + rng.standard_normal(len(theta)))
        squares.append((theta**2).mean())
    real = np.mean(squares[50:])
    assert real == pytest.approx(0.15 / 1.85, rel=0.01)
    assert setting.gradient_bound() < real < setting.gradient_bound(printed=False)


def test_the_minimum_is_sklearns(risk):
    theta, value = risk.minimum()
    n = risk.y.size
    model = LogisticRegression(C=1 / (n * 0.1), fit_intercept=False, tol=1e-10, max_iter=10_000)
    model.fit(risk.x.reshape(n, -1), risk.y.ravel())
    np.testing.assert_allclose(theta, model.coef_[0], atol=1e-5)
    assert value == pytest.approx(float(risk.value(model.coef_[0])), rel=1e-9)


def test_the_gradient_is_that_of_the_value_and_smoothness_bounds_its_change(risk):
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 5, risk.x.shape[2]))
    by_differences = approx_fprime(one[0], lambda theta: float(risk.value(theta)))
    np.testing.assert_allclose(risk.gradient(one)[0], by_differences, atol=1e-6)
    change = np.linalg.norm(risk.gradient(one) - risk.gradient(two), axis=1)
    assert (change <= risk.smoothness * np.linalg.norm(one - two, axis=1)).all()
    assert (change >= 0.1 * np.linalg.norm(one - two, axis=1)).all()


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_what_is_measured_stays_below_the_bounds(risk, steps, noise):
    theta0 = np.zeros(risk.x.shape[2])
    gap = float(risk.value(theta0)) - risk.minimum()[1]
    setting = Convergence(
        0.2, risk.smoothness, 0.1, risk.variance, 10, len(theta0), noise, 3, steps, 200, gap
    )
    assert setting.applies
    gaps, squares = measure(risk, setting, 5, rng=np.random.default_rng(0))
    assert 0 < gaps.mean() < setting.gap_bound(printed=False)
    assert 0 < squares.mean() < setting.gradient_bound(printed=False)


def test_full_batches_of_all_devices_are_gradient_descent():
    rng = np.random.default_rng(2)
    risk = LogisticRisk(rng.normal(size=(3, 8, 4)), rng.choice([-1.0, 1.0], (3, 8)), 0.1)
    setting = replace(
        SETTING, batch_size=8, parameters=4, noise=0.0, cohort=3, iterations=7, lr=0.3
    )
    gaps, squares = measure(risk, setting, 2, rng=rng)
    theta, least, expected = np.zeros(4), risk.minimum()[1], []
    for _ in range(7):
        expected.append(
            (float(risk.value(theta)) - least, float((risk.gradient(theta) ** 2).sum()))
        )
        theta = theta - 0.3 * risk.gradient(theta)
    np.testing.assert_allclose((gaps[0], squares[0]), np.mean(expected, axis=0), rtol=1e-10)
    np.testing.assert_allclose(gaps[0], gaps[1])


def test_more_noise_and_longer_rounds_loosen_the_bounds():
    base = SETTING.gap_bound()
    assert replace(SETTING, noise=0.2).gap_bound() > base
    assert replace(SETTING, local_steps=2).gap_bound() > base
    assert replace(SETTING, cohort=10).gap_bound() < base
    assert not replace(SETTING, lr=0.3).applies
    assert not replace(SETTING, local_steps=10).applies
