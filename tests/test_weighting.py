import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.weighting import WEIGHTINGS, OwnWeighting, RecordWeighting, UniformWeighting


@given(arrays(np.int64, (4, 7), elements=st.integers(0, 3000)))
def test_a_users_weights_never_exceed_one(counts):
    for weighting in WEIGHTINGS.values():
        weights = weighting.weights(counts)
        assert (weights >= 0).all()
        assert weights.sum(axis=0).max() <= 1 + 1e-12
    assert (RecordWeighting().weights(counts)[:, counts.sum(axis=0) == 0] == 0).all()


def test_a_silo_as_the_unit_counts_in_full():
    np.testing.assert_array_equal(OwnWeighting().weights(np.diag([3, 5])), np.eye(2))


def test_they_are_values():
    assert RecordWeighting() == pickle.loads(pickle.dumps(RecordWeighting())) != UniformWeighting()
    assert [weighting.needs_counts for weighting in WEIGHTINGS.values()] == [False, True]
