from dataclasses import replace

import numpy as np
import pytest
from erm_world import ALGO, SECURE, prepared, rounds_of, silos_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.engines.inprocess import InProcess
from fedpriv.mechanisms.calibration import paper_noise
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.models.bounded_linear import BoundedLinear
from fedpriv.models.tasks import Classification
from fedpriv.papers.huang.theory import (
    Theorem4,
    attained_epsilon,
    counterexamples,
    theorem4,
)
from fedpriv.papers.objective import Objective
from fedpriv.testing.faults import Faulty, drop

SIGMA = paper_noise(1000, 100, 1.0, 1e-5) / 1000  # G = 1, n = 1000
EXAMPLE = Theorem4(1.0, 0.1, 1.0, 10, 100, 10, 5, 1000, SIGMA, 0.0, 1.0)


def test_published_formulas():
    """L = 1, lambda = 0.1, T = 1000, K = 5, E = 10, m = 100, G = 1, d = 10, n = 1000, epsilon = 1,
    Gamma = 0, distance 1, in exact arithmetic: B = 128 + 10 sigma^2 + 90 / 99 * 10."""
    assert EXAMPLE.offset == pytest.approx(79)
    assert EXAMPLE.b == pytest.approx(137.0910012, abs=1e-7)
    assert EXAMPLE.printed == pytest.approx(25.4478223, abs=1e-6)
    assert EXAMPLE.bound == pytest.approx(0.5 * 4 * EXAMPLE.b / 0.01 / (79 + 1000))


@given(
    st.integers(1, 200), st.integers(1, 100), st.floats(0, 3), st.floats(0, 10), st.floats(0, 10)
)
def test_the_printed_form_is_the_looser_one_and_noise_in_the_drift_loosens_both(
    steps, n_summed, noise, gap, distance
):
    bound = replace(
        EXAMPLE,
        local_steps=steps,
        n_summed=n_summed,
        noise=noise,
        heterogeneity=gap,
        distance=distance,
    )
    assert bound.bound <= bound.printed * (1 + 1e-12)
    assert np.isinf(bound.printed) == (steps > 79)
    assert bound.bound <= bound.with_noisy_drift().bound


def objective_of(silos, convexity=0.1):
    return Objective(silos, BoundedLinear(bias=False).build((4,), 2), Classification(), convexity)


def test_the_minimum_is_scikit_learns():
    """Two classes under the regulariser of two weight vectors: half of it for their difference."""
    from sklearn.linear_model import LogisticRegression

    silos = silos_of([40, 40, 40])
    optimum = objective_of(silos).optimum(np.zeros(8))
    x = np.vstack([silo.x.numpy() for silo in silos]).astype(np.float64)
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    y = np.concatenate([silo.y.numpy() for silo in silos])
    fitted = LogisticRegression(C=2 / (0.1 * len(x)), fit_intercept=False, tol=1e-10).fit(x, y)
    np.testing.assert_allclose(optimum.theta[4:] - optimum.theta[:4], fitted.coef_[0], atol=1e-5)
    expected = (
        -np.log(fitted.predict_proba(x)[np.arange(len(x)), y]).mean()
        + 0.1 / 4 * (fitted.coef_**2).sum()
    )
    assert optimum.value == pytest.approx(expected, rel=1e-9)


def test_silos_weigh_the_same_whatever_their_size():
    silos = silos_of([10, 90])
    objective, theta = objective_of(silos), np.linspace(-1, 1, 8)
    alone = [objective_of([silo]).value(theta) for silo in silos]
    assert objective.value(theta) == pytest.approx(np.mean(alone), rel=1e-9)
    slope = lambda at: objective.value_and_gradient(at, silos)[1]  # noqa: E731
    assert check_grad(objective.value, slope, theta) < 1e-6


def test_a_minimum_that_is_not_known_to_be_near_is_an_error():
    """Without convexity a small gradient says nothing about the distance to the minimum."""
    with pytest.raises(ArithmeticError, match="the minimum was not found"):
        objective_of(silos_of([40, 40, 40]), convexity=1e-16).optimum(np.zeros(8))


def test_heterogeneity():
    same, [one] = silos_of([30]) * 3, silos_of([30], seed=1)
    assert objective_of(same).optimum(np.zeros(8)).heterogeneity == pytest.approx(0, abs=1e-8)
    assert objective_of([same[0], one]).optimum(np.zeros(8)).heterogeneity > 1e-4


def test_counterexamples():
    """Claims of epsilon 1, and what is certified of the same noise."""
    found = counterexamples()
    assert [example.claimed for example in found] == pytest.approx([1.0] * 6)
    certified = [49.05, 305.1, 559, 22603, 4.04, 10.5]
    assert [example.certified for example in found] == pytest.approx(certified, rel=2e-3)
    for example in found[::2]:
        assert 1.5 < example.attained < example.certified


def test_with_everybody_in_the_sum_what_is_certified_is_attained():
    gap = 2 / (paper_noise(50, 10, 1.0, 1e-5) * np.sqrt(10)) * np.sqrt(50)
    assert attained_epsilon(10, 10, 50) == pytest.approx(gaussian_epsilon(gap, 1e-5), rel=1e-6)


def test_twenty_silos_of_which_some_drop_out_stay_below_the_bound():
    """E = 12 of 20 silos in a sum. Every sixth silo shares its keys and falls silent before it
    sends its model."""
    algo = replace(
        ALGO, local_steps=5, calibration="certified", epsilon=8.0, broadcast_all=True, rounds=10
    )
    silos = silos_of([50] * 20)
    lossy = Faulty(InProcess(), tuple(drop(sender=f"silo{s}", step=5) for s in range(0, 20, 6)))
    excess, before, bounds, aborted = [], [], [], 0
    for seed in range(2):
        sim = prepared(algo, silos, SECURE, Gaussian(2.0, 0.0), seed, lossy)
        objective, start = (
            Objective(silos, sim.model, Classification(), algo.strong_convexity),
            sim.state.params,
        )
        optimum = objective.optimum(start)
        results = list(rounds_of(sim, algo.rounds))
        aborted += sum(result.aborted is not None for *_, result in results)
        excess.append(objective.value(results[-1][0]) - optimum.value)
        before.append(objective.value(start) - optimum.value)
        bounds.append(theorem4(algo, sim.plan, start=start, optimum=optimum))
    assert aborted < algo.rounds
    assert 0 < np.mean(excess) < min(before)
    for bound in bounds:
        assert np.mean(excess) < bound.bound < bound.printed
        assert bound.noise > 0


def progress(models, *, curvature, centres, lr, noise, n_summed, synchronised):
    """Both sides of Lemma 2 for one step from models (m, d): E |mean model - theta*|^2 after it,
    and the bound (3). Owner j's loss is curvature_j / 2 |theta - centre_j|^2.

    The paper's proof exchanges its two cases, but the bound holds: the mean of the owners' models
    is unbiased after a sum over E (n_summed) of them.

    synchronised: whether all owners continue from the sum's average after this step.
    """
    m, d = models.shape
    optimum = curvature @ centres / curvature.sum()
    least = np.mean(curvature / 2 * ((optimum - centres) ** 2).sum(axis=1))
    moved = models - lr * curvature[:, None] * (models - centres)
    step = float(((moved.mean(axis=0) - optimum) ** 2).sum()) + lr**2 * d * noise**2 / m
    spread = float(((moved - moved.mean(axis=0)) ** 2).sum()) / (m - 1) + lr**2 * d * noise**2
    left_out = spread * (1 / n_summed - 1 / m) if synchronised else 0.0
    mean = models.mean(axis=0)
    drift = float(((models - mean) ** 2).sum(axis=1).mean())
    bound = (
        (1 - lr * float(curvature.min())) * float(((mean - optimum) ** 2).sum())
        + 6 * float(curvature.max()) * lr**2 * least
        + 2 * drift
        + lr**2 * d * noise**2
        + left_out
    )
    return step + left_out, bound


@settings(max_examples=150)
@given(seed=st.integers(0, 100_000), owners=st.integers(2, 6), synchronised=st.booleans())
def test_lemma_2_bounds_one_step_of_quadratics(seed, owners, synchronised):
    rng = np.random.default_rng(seed)
    curvature = rng.uniform(0.1, rng.choice([0.11, 1, 10]), owners)
    after, bound = progress(
        rng.normal(size=(owners, 2)) * rng.choice([0.01, 1, 10]),
        curvature=curvature,
        centres=rng.normal(size=(owners, 2)) * rng.choice([0.01, 1, 10]),
        lr=float(rng.uniform(0, 1)) / (4 * curvature.max()),
        noise=float(rng.choice([0.0, 1.0, 10.0])),
        n_summed=int(rng.integers(1, owners + 1)),
        synchronised=synchronised,
    )
    assert after <= bound * (1 + 1e-9)


def test_lemma_2_by_hand():
    """theta* = 2 / 3 and Gamma = 1 / 6; the models move to .9 and 2.6, one of two is in the sum."""
    after, bound = progress(
        np.array([[1.0], [3.0]]),
        curvature=np.array([1.0, 2.0]),
        centres=np.array([[0.0], [1.0]]),
        lr=0.1,
        noise=0.5,
        n_summed=1,
        synchronised=True,
    )
    left_out = (2 * 0.85**2 + 0.01 * 0.25) * (1 - 1 / 2)
    assert after == pytest.approx((13 / 12) ** 2 + 0.01 * 0.25 / 2 + left_out)
    noiseless = 0.9 * (4 / 3) ** 2 + 6 * 2 * 0.01 / 6 + 2 * 1.0
    assert bound == pytest.approx(noiseless + 0.01 * 0.25 + left_out)


def test_lemma_2_needs_its_step_size():
    """So the test above can fail: a step of four times 1 / L overshoots."""
    models, centres = np.ones((2, 1)), np.zeros((2, 1))
    losses = {"curvature": np.ones(2), "centres": centres, "noise": 0.0, "n_summed": 2}
    after, bound = progress(models, lr=4.0, synchronised=True, **losses)
    assert after > bound


def test_lemma_3_leaves_out_the_noise():
    """It bounds how far the owners' models lie apart by a bound H on gradients alone. But steps
    have noise, and owners outside the sum are never brought back: its first bound,
    4 eta^2 (K - 1)^2 H^2, is zero for flat losses, as its second one; owners drift all the same."""
    owners, steps, lr, noise, parameters = 10, 2, 0.1, 0.5, 3
    drift = steps * lr**2 * parameters * noise**2 * (owners - 1) / owners
    rng = np.random.default_rng(0)
    models = lr * noise * rng.standard_normal((20_000, steps, owners, parameters)).sum(axis=1)
    spread = ((models - models.mean(axis=1, keepdims=True)) ** 2).sum(axis=2).mean()
    assert spread == pytest.approx(drift, rel=0.02)
    assert drift > 0 == 4 * lr**2 * (steps - 1) ** 2 * 0.0**2
