import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.algorithms.participation import PARTICIPATION, balanced
from fedpriv.util.streams import Streams


@pytest.mark.parametrize("name", PARTICIPATION)
@given(
    silos=st.integers(1, 12),
    share=st.floats(0, 1),
    round=st.integers(1, 40),
    seed=st.integers(0, 5),
)
def test_a_cohort_has_its_size_and_repeats(name, silos, share, round, seed):
    cohort = max(1, round_half(share * silos))
    drawn = PARTICIPATION[name](round, silos, cohort, Streams(seed))
    assert len(set(drawn)) == cohort
    assert list(drawn) == sorted(drawn)
    assert 0 <= drawn[0] <= drawn[-1] < silos
    assert drawn == PARTICIPATION[name](round, silos, cohort, Streams(seed))


def round_half(x):
    return int(np.floor(x + 0.5))


@given(silos=st.integers(1, 16), cohort=st.integers(1, 16), seed=st.integers(0, 3))
def test_balanced_silos_differ_by_at_most_one_round_at_any_time(silos, cohort, seed):
    cohort, counts = min(cohort, silos), np.zeros(silos)
    for round in range(1, 30):
        counts[list(balanced(round, silos, cohort, Streams(seed)))] += 1
        assert counts.min() >= round * cohort // silos
        assert counts.max() <= -(-round * cohort // silos)


@pytest.mark.parametrize("name", PARTICIPATION)
def test_every_silo_is_as_likely_as_the_others(name):
    seen = np.zeros((3, 5))
    for seed in range(1500):
        for t in range(3):
            seen[t, list(PARTICIPATION[name](t + 1, 5, 2, Streams(seed)))] += 1
    for counts in seen:
        statistic = float(((counts - 600) ** 2).sum() / (600 * 0.6) * 4 / 5)
        assert stats.chi2.sf(statistic, 4) > 1e-6
