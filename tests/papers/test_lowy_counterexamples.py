"""ALGORITHMS 8 (T9 to T11) and 9 (rows 28 to 32); numbers from 7.3."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.zcdp import SmallEpsilonClaim
from fedpriv.certificates.sampling import paper_batch
from fedpriv.papers.lowy import counterexamples as lowy


def test_golden_row_28():
    assert [paper_batch(1238, rounds) for rounds in (25, 50)] == [606, 428]
    assert [paper_batch(1000, rounds) for rounds in (50, 100)] == [346, 244]
    assert pytest.approx(6.524672e-7, abs=1e-13) == lowy.DELTA


def test_golden_row_29():
    found = [
        lowy.moments_noise(1, rounds=rounds, held=held) for held in (1, 2) for rounds in (25, 50)
    ]
    assert found == pytest.approx([0.04414753, 0.06243404, 0.08829507, 0.12486808], abs=1e-8)
    assert lowy.theorem_noise(1, 25, held=2) == pytest.approx(0.12193617, abs=1e-8)


@pytest.mark.parametrize(
    ("epsilon", "noise", "flat", "per_tensor", "alternate"),
    [
        (0.75, 35.67, 0.567, 1.196, 0.812),
        (1, 26.753, 0.773, 1.632, 1.108),
        (12, 2.229, 12.55, 35.6, 18.6),
        (18, 1.486, 22.0, 77.0, 32.1),
    ],
)
def test_golden_row_30_and_the_table_of_lo_3(epsilon, noise, flat, per_tensor, alternate):
    z, chances = lowy.multiplier(epsilon), lowy.multiplicity_chances()
    assert z == pytest.approx(noise, abs=5e-3)
    # The table's grid has steps of 1e-4, rounded down in every release; the one here is finer, and
    # so larger.
    for factor, releases, bound in ((1, 25, flat), (0.5, 25, per_tensor), (1, 49, alternate)):
        found = lowy.attained(z * factor, releases, chances)
        assert bound * (1 - 2e-3) - 5e-4 < found < bound * (1 + 2e-3) + releases * 1e-4
    assert lowy.attained(z, 25, chances) <= lowy.with_replacement(z, 25)


def doubled_budget_limit(delta):
    """The largest epsilon that twice the paper's budget, epsilon^2 / (4 ln(1 / delta)) of zCDP,
    still keeps."""

    def beyond(epsilon):
        rho = SmallEpsilonClaim.rho_for(epsilon, delta)
        return gaussian_epsilon(2 * math.sqrt(rho), delta) - epsilon

    return brentq(beyond, 1, 2 * math.log(1 / delta))


def test_golden_row_32():
    found = [doubled_budget_limit(delta) for delta in (1e-4, 1e-5, 1238**-2)]
    assert found == pytest.approx([7.526, 7.968, 8.402], abs=1e-2)


def test_the_lower_bound_is_exact_for_a_gaussian_and_never_above():
    """With the record once in every batch the pair is two Gaussians."""
    for noise, releases in ((26.0, 25), (3.0, 10), (1.0, 4)):
        exact = gaussian_epsilon(2 * math.sqrt(releases) / noise, lowy.DELTA)
        found = lowy.attained(noise, releases, (1e-300, 1.0))
        assert exact - 0.003 * exact < found <= exact


@pytest.mark.parametrize("noise", [26.753, 3.0, 1.486])
def test_one_release_has_the_delta_that_is_computed(noise):
    """By the integral of p - e^epsilon q where it is positive, at the epsilon found."""
    chances = lowy.multiplicity_chances()

    def density(x, sign):
        return sum(c * stats.norm.pdf(x, sign * m, noise) for m, c in enumerate(chances))

    epsilon = lowy.attained(noise, 1, chances)
    x = np.linspace(-20 - 12 * noise, 20 + 12 * noise, 100_001)
    above = np.maximum(0, density(x, 1) - math.exp(epsilon) * density(x, -1)).sum() * (x[1] - x[0])
    assert above == pytest.approx(lowy.DELTA, rel=0.01)


def test_t9_the_claims_are_exceeded():
    assert lowy.attained(lowy.multiplier(18), 25, lowy.multiplicity_chances()) > 18
    assert lowy.attained(lowy.multiplier(0.75) / 2, 25, lowy.multiplicity_chances()) > 0.75


@pytest.mark.parametrize(
    ("epsilon", "phase", "rounds", "exact"),
    [(12, 5, 25, 12.08), (18, 5, 25, 19.99), (18, 25, 25, 21.1)],
)
def test_lo_2(epsilon, phase, rounds, exact):
    gap = lowy.spider_gap(epsilon, phase=phase, rounds=rounds)
    assert gap**2 / 2 == pytest.approx(
        (2 - 1 / phase) * SmallEpsilonClaim.rho_for(epsilon, lowy.DELTA)
    )
    assert gaussian_epsilon(gap, lowy.DELTA) == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize(
    ("epsilon", "phase", "rounds", "exact"),
    [
        (1, 5, 25, 1.41),
        (1, 5, 50, 1.98),
        (1, 1, 50, 4.62),
        (18, 5, 25, 43.6),
        (18, 5, 50, 67.9),
        (18, 1, 50, 222.9),
    ],
)
def test_lo_2_without_the_factor(epsilon, phase, rounds, exact):
    gap = lowy.spider_gap(epsilon, phase=phase, rounds=rounds, without_factor=True)
    assert gaussian_epsilon(gap, lowy.DELTA) == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize(("epsilon", "bound"), [(0.75, 22.9), (1, 37.3), (18, 12325)])
def test_lo_4_without_the_factor(epsilon, bound):
    z = lowy.multiplier(epsilon) / math.sqrt(lowy.SIZE)
    assert lowy.attained(z, 25, lowy.multiplicity_chances()) == pytest.approx(bound, rel=5e-3)


def test_every_row_fails_by_its_number():
    rows = lowy.counterexamples()
    assert len(rows) == 11
    assert all(row.fails == "number" and row.attained <= row.certified for row in rows)
    claimed = [12, 18, 18, 1, 12, 18, 0.75, 0.75, 0.75, 1, 2]
    assert [row.claimed for row in rows] == claimed
    attained = [12.08, 19.99, 21.1, 1.41, 12.55, 22.0, 0.812, 1.196, 22.9]  # 7.3, LO-2 to LO-4
    assert [row.attained for row in rows[:9]] == pytest.approx(attained, rel=1e-2)


# -- SPIDER's smaller noise, s2 |w - w'| (Lowy et al., Algorithm 3) --------------------------------


CLIP = 0.7


def clipped(gradient):
    return gradient * min(1.0, CLIP / max(float(np.linalg.norm(gradient)), 1e-300))


def logistic(x, w):
    """The gradient of log(1 + exp(-x w)); its smoothness is |x|^2 / 4."""
    return -x / (1 + np.exp(x @ w))


def relu(x, w):
    """The gradient of max(x w, 0), which is not smooth."""
    return x * float(x @ w > 0)


@given(seed=st.integers(0, 10_000))
def test_with_a_proved_smoothness_a_record_moves_a_difference_in_proportion_to_the_step(seed):
    """Clipping is a projection onto a ball, which brings no two gradients further apart."""
    rng = np.random.default_rng(seed)
    scale = rng.choice([0.001, 1, 5], size=2)
    w, step = rng.normal(size=3), rng.normal(size=3) * scale[0]
    records = rng.normal(size=(2, 3)) * scale[1]
    smoothness = max(float(x @ x) for x in records) / 4
    for bound in (lambda g: g, clipped):
        changes = [bound(logistic(x, w + step)) - bound(logistic(x, w)) for x in records]
        moved = np.linalg.norm(changes[0] - changes[1])
        assert moved <= 2 * smoothness * np.linalg.norm(step) + 1e-12


def test_without_one_no_multiple_of_the_step_is_enough():
    """A kink between two points that are almost equal: networks with ReLU have them."""
    x, w = np.array([1.0, 0.0]), np.array([1e-9, 0.0])
    change = clipped(relu(x, w)) - clipped(relu(x, -w))
    assert np.linalg.norm(change) > 1e6 * np.linalg.norm(2 * w)
