"""Lower bounds of epsilon from right guesses, and the estimate beside them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.audit.bounds import guess_bound
from fedpriv.audit.epsilon_estimate import estimated_epsilon
from fedpriv.audit.families import GaussianFamily, SampledFamily
from fedpriv.audit.guessing import Guesses, best_number

DELTA, CONFIDENCE = 1e-5, 0.95
FAMILY = GaussianFamily()


def theorem(m, r, v, epsilon, delta):
    """Steinke et al.'s Theorem 5.2 as printed, term by term, from the binomial's probabilities."""
    masses = [
        float(binom.pmf(k, r, math.exp(epsilon) / (1 + math.exp(epsilon)))) for k in range(r + 1)
    ]
    at_least = [sum(masses[k:]) for k in range(r + 1)]
    return at_least[v] + 2 * m * delta * max(
        (at_least[v - i] - at_least[v]) / i for i in range(1, v + 1)
    )


@pytest.mark.parametrize(
    ("m", "r", "v", "delta"),
    [(100, 100, 80, 0.0), (1000, 100, 90, 1e-5), (500, 40, 40, 1e-4), (200, 200, 150, 1e-3)],
)
def test_the_bound_for_any_mechanism_is_where_the_theorem_meets_the_confidence(m, r, v, delta):
    expected = brentq(lambda epsilon: theorem(m, r, v, epsilon, delta) - 0.05, 0, 20)
    assert Guesses(m, r, v, CONFIDENCE).epsilon(delta) == pytest.approx(expected, abs=1e-8)


def test_guesses_that_are_all_right_have_a_closed_form():
    """q^r = 1 - confidence with q = 1 / (1 + exp(-epsilon))."""
    q = 0.05 ** (1 / 60)
    assert Guesses(60, 60, 60, CONFIDENCE).epsilon(0.0) == pytest.approx(math.log(q / (1 - q)))


@pytest.mark.parametrize("correct", [65, 75, 90])
def test_the_curve_of_pure_privacy_proves_nearly_what_the_binomial_does(correct):
    """g(x) = x / exp(epsilon), nobody abstains. The recursion takes more than `correct` right
    guesses for `correct` and so loses a little."""
    guesses = Guesses(100, 100, correct, CONFIDENCE)
    bound = guesses.epsilon(0.0)
    assert guesses.refute(lambda true: true * math.exp(-0.7 * bound))
    assert not guesses.refute(lambda true: true * math.exp(-1.01 * bound))


def worst_tail(right, guesses, g, m):
    """The largest Pr[at least `right`] that the inequalities for all upper sets allow, as a linear
    programme's bisection on tangents: an oracle for the recursion that knows nothing of its
    order."""
    from scipy.optimize import linprog

    counts = np.arange(guesses + 1)
    rows = []
    for i in range(1, guesses + 1):
        above, below = (
            np.where(counts >= i, counts, 0) / m,
            np.where(counts >= i - 1, guesses - counts, 0) / m,
        )
        for point in np.geomspace(1e-7, guesses / m, 60):
            slope = (g(point * 1.0001) - g(point * 0.9999)) / (0.0002 * point)
            # H >= g(R) >= g(point) + slope (R - point), since g is convex.
            rows.append((slope * above - below, slope * point - g(point)))
    found = linprog(
        -(counts >= right).astype(float),
        A_ub=np.array([row for row, _ in rows]),
        b_ub=np.array([most for _, most in rows]),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    return -found.fun


@pytest.mark.parametrize(
    ("m", "r", "mu"), [(20, 20, 0.5), (40, 20, 1.0), (100, 12, 1.0), (20, 20, 2.0)]
)
def test_the_recursion_is_the_worst_that_its_inequalities_allow(m, r, mu):
    def g(true):
        return float(norm.cdf(norm.ppf(min(true, 1.0)) - mu))

    for right in range(r // 2, r + 1, 3):
        worst = worst_tail(right, r, g, m)
        assert not Guesses(m, r, right, 1 - 0.98 * worst).refute(g)
        assert Guesses(m, r, right, max(0.0, 1 - 1.05 * worst)).refute(g) or worst > 0.95


@settings(max_examples=40, deadline=None)
@given(st.integers(10, 200), st.data())
def test_more_confidence_proves_less_and_more_right_guesses_prove_more(m, data):
    r = data.draw(st.integers(2, m))
    v = data.draw(st.integers(1, r))

    def bounds(correct, confidence):
        guesses = Guesses(m, r, correct, confidence)
        return np.array([guesses.epsilon(DELTA), FAMILY.least_epsilon(guesses.refute, DELTA)])

    assert (bounds(v, 0.99) <= bounds(v, 0.9) + 1e-9).all()
    assert (bounds(v - 1, 0.9) <= bounds(v, 0.9) + 1e-9).all()


@pytest.mark.parametrize(("mu", "m"), [(0.0, 200), (0.5, 300), (1.0, 500), (3.0, 300)])
def test_bounds_of_a_gaussian_exceed_the_truth_no_more_often_than_allowed(mu, m):
    """2000 runs of a Gaussian mechanism whose epsilon is exact; more than 131 exceedances at 5 %
    have probability 0.1 %. The bound within the family is the larger one on average, as its paper
    says."""
    truth, rng = gaussian_epsilon(mu, DELTA), np.random.default_rng(0)
    number = best_number(m, truth, delta=DELTA, confidence=CONFIDENCE)
    coins = rng.random((2000, m)) < 0.5
    found = {}
    results = []
    for scores, own in zip(rng.normal(size=coins.shape) + mu * coins, coins):
        order, half = np.argsort(scores), number // 2
        correct = int(own[order[-half:]].sum() + (~own[order[:half]]).sum())
        if correct not in found:
            found[correct] = guess_bound(
                scores, own, n_guesses=number, delta=DELTA, confidence=CONFIDENCE, family=FAMILY
            )
            assert found[correct].evidence.correct_guesses == correct
        results.append((found[correct].epsilon, found[correct].within))
    any_mechanism, within = np.array(results).T
    assert (np.maximum(any_mechanism, within) > truth).sum() <= 131
    if mu >= 0.5:
        assert within.mean() > 1.3 * any_mechanism.mean() > 0.2


def test_a_fully_sampled_family_is_the_gaussian_one():
    """One round at rate 1 is a Gaussian release; its curve from losses differs by their
    discretisation and the grid."""
    guesses = Guesses(500, 60, 56, CONFIDENCE)
    sampled = SampledFamily(1.0, 1, 1.0).least_epsilon(guesses.refute, DELTA)
    assert sampled == pytest.approx(FAMILY.least_epsilon(guesses.refute, DELTA), rel=0.02)


def test_a_certificate_without_noise_is_answered_with_a_guess_about_nearly_everybody():
    assert best_number(400, math.inf, delta=DELTA, confidence=CONFIDENCE) == 360


@pytest.mark.parametrize(("epsilon", "few", "many"), [(4.0, 50, 200), (1.0, 200, 400)])
def test_the_best_number_is_neither_the_surest_guess_nor_all(epsilon, few, many):
    assert few < best_number(1000, epsilon, delta=DELTA, confidence=CONFIDENCE) < many


def test_the_estimate_is_near_the_truth():
    """The gap's standard error is sqrt(4 / m): three of them either way."""
    rng, m = np.random.default_rng(1), 4000
    coins = rng.random(m) < 0.5
    signals = 7 * (rng.normal(size=m) + coins)  # cosines know no scale
    low, high = (gaussian_epsilon(1 + shift * 3 * math.sqrt(4 / m), DELTA) for shift in (-1, 1))
    assert low < estimated_epsilon(signals, coins, DELTA).epsilon < high
    assert estimated_epsilon(coins * 1.0, coins, DELTA).epsilon == math.inf
    assert estimated_epsilon(-1.0 * coins, coins, DELTA).epsilon == 0.0
    assert math.isnan(estimated_epsilon(signals, np.ones(m, dtype=bool), DELTA).epsilon)


def test_the_interval_of_the_estimate_holds_the_truth_as_often_as_it_says():
    """400 runs of known Gaussians: the number of misses is binomial."""
    rng = np.random.default_rng(5)
    truth, m, runs, level = 1.3, 120, 400, 0.9
    epsilon = gaussian_epsilon(truth, DELTA)
    below = above = 0
    for _ in range(runs):
        coins = rng.random(m) < 0.5
        found = estimated_epsilon(rng.normal(size=m) + truth * coins, coins, DELTA, level)
        assert found.low <= found.epsilon <= found.high
        below += epsilon > found.high
        above += epsilon < found.low
    for misses in (below, above):
        assert binom.cdf(misses, runs, (1 - level) / 2) > 1e-4
        assert binom.sf(misses - 1, runs, (1 - level) / 2) > 1e-4


def test_without_a_signal_the_interval_begins_at_zero():
    rng = np.random.default_rng(3)
    coins = rng.random(500) < 0.5
    found = estimated_epsilon(rng.normal(size=500) - 0.2 * coins, coins, DELTA)
    assert (found.epsilon, found.low) == (0.0, 0.0)
    assert found.high < 1
