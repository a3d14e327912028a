from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from fedpriv.papers.hu.theory import (
    Convergence,
    breast_cancer_risk,
    gradient_variance,
    measure,
)
from fedpriv.papers.logistic import LogisticRisk
from fedpriv.papers.uldp_fl.theory import breast_cancer_pairs

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


@pytest.mark.parametrize("risk", [breast_cancer_risk(4, 0.1), breast_cancer_pairs(8, 2)])
def test_the_gradient_is_that_of_the_value_and_smoothness_bounds_its_change(risk):
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=(2, 5, risk.x.shape[2]))
    by_differences = approx_fprime(one[0], lambda theta: float(risk.value(theta)))
    np.testing.assert_allclose(risk.gradient(one)[0], by_differences, atol=1e-6)
    change = np.linalg.norm(risk.gradient(one) - risk.gradient(two), axis=1)
    assert (change <= risk.smoothness * np.linalg.norm(one - two, axis=1)).all()
    assert (change >= risk.strong_convexity * np.linalg.norm(one - two, axis=1)).all()


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_what_is_measured_stays_below_the_bounds(risk, steps, noise):
    theta0 = np.zeros(risk.x.shape[2])
    gap = float(risk.value(theta0)) - risk.minimum()[1]
    setting = Convergence(
        0.2,
        risk.smoothness,
        0.1,
        gradient_variance(risk),
        10,
        len(theta0),
        noise,
        3,
        steps,
        200,
        gap,
    )
    assert setting.applies
    gaps, squares = measure(risk, setting, 5, rng=np.random.default_rng(0))
    assert 0 < gaps.mean() < setting.gap_bound(printed=False)
    assert 0 < squares.mean() < setting.gradient_bound(printed=False)


def test_full_batches_of_all_devices_are_gradient_descent():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(3, 8, 4)), rng.choice([-1.0, 1.0], (3, 8))
    risk = LogisticRisk(x, y, np.full(3, 8), 0.1)
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


def test_the_proofs_hold_for_short_steps():
    assert not replace(SETTING, lr=0.3).applies
    assert not replace(SETTING, local_steps=10).applies


def test_corollary_2_is_attained_by_opposite_gradients():
    before, after = np.array([[3.0], [1.0]]), np.array([[-3.0], [1.0]])
    assert abs(before.mean() - after.mean()) == pytest.approx(2 * 3.0 / 2)


# -- Lemmas 7 and 8: how far off the average over the chosen devices can be ------------------------
#
# A uniformly random set of r of n devices is averaged. v_i is device i's noisy batch gradient: its
# mean is grad f_i, a batch of gamma records adds a variance of at most beta^2 / gamma, the noise
# d sigma^2. Every device's model is read as what it would be if the device had been chosen; then
# the set does not depend on the models, and both lemmas hold:
#
# - Lemma 7. Noise and batches give at most (d sigma^2 + beta^2 / gamma) / r. Drawing r of n gives
#   (n - r) / (r (n - 1)) times the mean of |grad f_i - grad f|^2, and n^2 <= 4 r (n - 1) (n - r)
#   for 1 <= r < n, so this is at most 4 (n - r)^2 / n^3 times the sum of |grad f_i|^2.
# - Lemma 8. After s steps a model lies eta times the sum of its s deviations v_i - mean v from the
#   average. Their mean square over the chosen devices is at most that of v_i, and the square of a
#   sum of s vectors at most s times the sum of their squares.


def average_variance(gradients, *, cohort, noise, variance, batch_size):
    """Equation (18): bound on E |mean over r of v_i - mean over n of grad f_i|^2."""
    n, d = gradients.shape
    chosen = 4 * (n - cohort) ** 2 / n**3 * (gradients**2).sum()
    return d * noise**2 / cohort + variance / batch_size + chosen


def network_error(gradients, *, lr, cohort, noise, variance, batch_size):
    """Equation (19): bound on the mean squared distance of the chosen devices' models from their
    average. gradients: at the models before each of the s steps, s arrays (n, d)."""
    steps = len(gradients)
    n, d = gradients[0].shape
    random = d * noise**2 * (cohort + 1) / cohort + 2 * variance / batch_size
    squares = sum((each**2).sum() for each in gradients)
    devices = (2 * (n - cohort) ** 2 + n**2) / n**3
    return lr**2 * (2 * steps**2 * random + 4 * steps * devices * squares)


@settings(max_examples=60)
@given(n=st.integers(2, 7), data=st.data(), seed=st.integers(0, 10_000))
def test_lemma_7_bounds_the_exact_variance(n, data, seed):
    cohort = data.draw(st.integers(1, n))
    rng = np.random.default_rng(seed)
    gradients = rng.normal(size=(n, 2)) * rng.choice([0.01, 1, 10]) + rng.normal(size=2)
    noise, variance, size = rng.uniform(0, 1), rng.uniform(0, 3), int(rng.integers(1, 9))
    means = [gradients[list(each)].mean(axis=0) for each in combinations(range(n), cohort)]
    assert np.mean(means, axis=0) == pytest.approx(gradients.mean(axis=0))  # equation (17)
    chosen = np.mean([np.sum((mean - gradients.mean(axis=0)) ** 2) for mean in means])
    exact = chosen + (2 * noise**2 + variance / size) / cohort
    bound = average_variance(
        gradients, cohort=cohort, noise=noise, variance=variance, batch_size=size
    )
    assert exact <= bound * (1 + 1e-9)


def test_lemma_7_without_its_last_term_fails():
    """So the test above can fail: two devices that disagree, one of them chosen."""
    gradients = np.array([[1.0], [-1.0]])
    none = average_variance(0 * gradients, cohort=1, noise=0, variance=0, batch_size=1)
    assert none < 1.0 <= average_variance(gradients, cohort=1, noise=0, variance=0, batch_size=1)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize(("n", "cohort", "steps"), [(4, 2, 3), (5, 5, 4), (3, 1, 2), (16, 10, 5)])
def test_lemma_8_bounds_the_spread_of_quadratics(n, cohort, steps, noise):
    """f_i(x) = |x - c_i|^2 / 2 with gradients of variance beta^2 in every coordinate's sum."""
    rng = np.random.default_rng(n + steps)
    copies, d, lr, beta, size = 4000, 3, 0.3, 0.7, 4
    centres = rng.normal(size=(n, d))
    models = np.zeros((copies, n, d))
    gradients = []
    for _ in range(steps):
        gradient = models - centres
        gradients.append(gradient)
        sampled = beta / np.sqrt(size * d) * rng.standard_normal(models.shape)
        models = models - lr * (gradient + sampled + noise * rng.standard_normal(models.shape))
    chosen = rng.random((copies, n)).argsort(axis=1)[:, :cohort]
    own = np.take_along_axis(models, chosen[..., None], axis=1)
    spread = ((own - own.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean()
    bounds = [
        network_error(
            [each[copy] for each in gradients],
            lr=lr,
            cohort=cohort,
            noise=noise,
            variance=beta**2,
            batch_size=size,
        )
        for copy in range(200)
    ]
    assert spread <= np.mean(bounds)
    assert (spread > 0) == (cohort > 1)
