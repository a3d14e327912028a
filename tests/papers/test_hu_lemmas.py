"""Corollary 2 and Lemmas 7 and 8 of Hu, Guo, Gong against exact moments of small federations."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.papers.hu.lemmas import average_variance, network_error


@given(seed=st.integers(0, 10_000), size=st.integers(1, 5))
def test_corollary_2_a_mean_of_bounded_gradients_moves_by_twice_the_bound(seed, size):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=(size + 1, 3))
    g *= 2.0 / np.linalg.norm(g, axis=1, keepdims=True)  # G = 2
    before, after = g[:size].mean(axis=0), np.vstack([g[1:size], g[size:]]).mean(axis=0)
    assert np.linalg.norm(before - after) <= 2 * 2.0 / size + 1e-12


def test_corollary_2_is_attained_by_opposite_gradients():
    before, after = np.array([[3.0], [1.0]]), np.array([[-3.0], [1.0]])
    assert abs(before.mean() - after.mean()) == pytest.approx(2 * 3.0 / 2)


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
