import math

import mpmath
import numpy as np
import pytest
from exact_binomial import epsilon_of_one, shifted_delta, shifted_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from fedpriv.accountants.pld import gaussian_epsilon
from fedpriv.accountants.shifted_binomial import (
    COMPUTED,
    FEWEST,
    gaussian_gap,
    largest_step,
    least_trials,
    step_bound,
)


@pytest.mark.parametrize(
    ("trials", "shift", "delta"),
    # Independent sums over both probability functions, to eight digits.
    [(1000, 5, 7.798775e-4), (10_000, 20, 4.265956e-3)],
)
def test_delta_of_a_shift(trials, shift, delta):
    assert shifted_delta(trials, shift, 1.0) == pytest.approx(delta, abs=1e-8)
    k = np.arange(trials + shift + 1)
    of, against = stats.binom.pmf(k, trials, 0.25), stats.binom.pmf(k - shift, trials, 0.25)
    ways = [
        np.maximum(one - math.e * other, 0).sum() for one, other in ((of, against), (against, of))
    ]
    assert shifted_delta(trials, shift, 1.0) == pytest.approx(max(ways), rel=1e-9)


def test_epsilon_is_the_inverse_of_delta_and_the_loss_distribution_agrees():
    delta = shifted_delta(10_000, 20, 1.0)
    assert epsilon_of_one(10_000, 20, delta) == pytest.approx(1.0, abs=1e-6)
    assert 1.0 <= shifted_epsilon(10_000, {20: 1}, delta) < 1.0 + 3e-4
    assert math.isinf(epsilon_of_one(10, 20, 1e-5))
    assert epsilon_of_one(10_000, 20, shifted_delta(10_000, 20, 0.2)) == pytest.approx(
        0.2, abs=1e-8
    )


@given(st.integers(2, 5000), st.floats(0, 1))
def test_the_inequality_that_the_gap_rests_on(trials, place):
    """Zubkov and Serov: Phi(C(k)) <= P(X <= k) <= Phi(C(k + 1)); equal at the ends, hence the slack
    for rounding."""

    def c(k):
        entropy = special.rel_entr(k / trials, 0.25) + special.rel_entr(1 - k / trials, 0.75)
        return math.copysign(math.sqrt(2 * trials * max(entropy, 0)), k / trials - 0.25)

    k = min(int(place * trials), trials - 1)
    # Not `logcdf`, which is minus infinity below e^-745.
    below = special.logsumexp(stats.binom.logpmf(np.arange(k + 1), trials, 0.25))
    low = -math.inf if k == 0 else special.log_ndtr(c(k))
    assert low <= below + 1e-9
    assert k == trials - 1 or below <= special.log_ndtr(c(k + 1)) + 1e-9


@settings(max_examples=30, deadline=None)
@given(st.integers(FEWEST, 400_000), st.integers(1, 400), st.sampled_from([0.1, 1.0, 3.0]))
def test_no_shift_of_one_count_tells_more_than_the_gaussian(trials, shift, epsilon):
    gap = gaussian_gap(trials, shift)
    if gap < math.inf:
        gaussian = stats.norm.cdf(gap / 2 - epsilon / gap) - math.exp(epsilon) * stats.norm.cdf(
            -gap / 2 - epsilon / gap
        )
        assert shifted_delta(trials, shift, epsilon) <= gaussian * (1 + 1e-9) + 1e-15


SHIFTS = [
    {64: 1},
    {8: 64},
    {8: 32, -8: 32},
    {45: 1, -45: 1},
    {60: 1, 10: 4},
]


@pytest.mark.parametrize("shifts", SHIFTS, ids=str)
def test_no_shift_of_many_counts_tells_more_than_the_gaussian(shifts):
    """Vectors of length at most 64, however it is spread, against the exact loss distributions'
    composition."""
    trials = 100_000
    counts = sum(shifts.values())
    assert sum(shift**2 * count for shift, count in shifts.items()) <= 64**2 + 1
    bound = gaussian_epsilon(gaussian_gap(trials, 64), 1e-5)
    # A coarser grid for more coordinates would be beaten by its own rounding.
    assert shifted_epsilon(trials, shifts, 1e-5, interval=1e-4 if counts < 100 else 1e-5) <= bound


def test_the_longest_shift_of_one_count_tells_nearly_as_much_as_the_gaussian():
    trials = least_trials(1.0, 4096)
    assert gaussian_gap(trials, 4096) <= 1.0 < gaussian_gap(trials - 8, 4096)
    # Of this Gaussian, mu = 1: 4.3774 by its closed form.
    assert 0.997 * 4.3774 < epsilon_of_one(trials, 4095, 1e-5) <= 4.3775


@pytest.mark.parametrize(("trials", "length"), [(FEWEST - 1, 1.0), (2000, 400.0)])
def test_nothing_is_proved_for_little_noise(trials, length):
    assert math.isinf(gaussian_gap(trials, length))


@pytest.mark.parametrize(("trials", "length"), [(FEWEST, 2.0), (20_000, 72.0)])
def test_the_gap_is_the_largest_step(trials, length):
    """Against 40 digits: the largest step is the lowest, 12 deviations, the shift and one more
    below the mean."""
    low = math.floor(trials / 4 - 12 * math.sqrt(trials * 3 / 16) - length - 1)
    with mpmath.workdps(40):
        mass = tail = mpmath.mpf(3) ** trials / mpmath.mpf(4) ** trials
        tails = {}
        for k in range(1, low + 1):
            mass *= mpmath.mpf(trials - k + 1) / (3 * k)
            tail += mass
            tails[k] = tail

        def h(k):
            guess = -mpmath.sqrt(-2 * mpmath.log(tails[k]))
            return mpmath.findroot(lambda x: mpmath.log(mpmath.ncdf(x) / tails[k]), guess)

        step = float(h(low) - h(low - 1))
    assert gaussian_gap(trials, length) == pytest.approx(length * step, rel=1e-8)


@given(st.integers(10_000, COMPUTED), st.integers(1, 100))
@settings(max_examples=30, deadline=None)
def test_the_bound_on_a_step_holds_where_steps_are_computed(trials, reach):
    low, high = trials // 4 - reach, trials // 4 + reach
    assert largest_step(trials, low, high) <= step_bound(trials, low, high)


def test_the_bound_goes_on_where_computing_ends():
    computed, proved = gaussian_gap(COMPUTED, 100.0), gaussian_gap(COMPUTED + 1, 100.0)
    assert computed < proved < 1.01 * computed


@pytest.mark.parametrize("shifts", [(1, 2), (1, -2), (-1, 2)])
def test_shifts_of_two_counts_point_where_they_point(shifts):
    """Against the joint probabilities, summed up; shifts against each other differ from shifts
    alike."""
    trials, k = 1024, np.arange(-2, 1024 + 3)
    still, moved = [0.0], [0.0]
    for shift in shifts:
        still = np.add.outer(still, stats.binom.logpmf(k, trials, 0.25)).ravel()
        moved = np.add.outer(moved, stats.binom.logpmf(k - shift, trials, 0.25)).ravel()
    found = shifted_epsilon(trials, dict.fromkeys(shifts, 1), 1e-5)
    deltas = [
        np.maximum(np.exp(of) - np.exp(epsilon + against), 0).sum()
        for of, against in ((still, moved), (moved, still))
        for epsilon in (found - 3e-4, found)
    ]
    assert max(deltas[1::2]) <= 1e-5 < max(deltas[::2])
