import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.rounds.contributors import (
    WEIGHTINGS,
    HomeWeighting,
    OwnWeighting,
    RecordsInFull,
    RecordWeighting,
    UniformWeighting,
    Users,
    Weighting,
    bounded_weights,
)
from fedpriv.rounds.plan import Federation


@given(arrays(np.int64, (4, 7), elements=st.integers(0, 3000)))
def test_a_users_weights_never_exceed_one(counts):
    for weighting in (UniformWeighting, RecordWeighting):
        weights = weighting().weights(counts)
        assert (weights >= 0).all()
        assert weights.sum(axis=0).max() <= 1 + 1e-12
    assert (RecordWeighting().weights(counts)[:, counts.sum(axis=0) == 0] == 0).all()


def test_a_silo_as_the_unit_counts_in_full():
    np.testing.assert_array_equal(OwnWeighting().weights(np.diag([3, 5])), np.eye(2))


def test_a_silos_own_records_count_in_full():
    weighting = RecordsInFull()
    np.testing.assert_array_equal(weighting.own_weights(1, (2, 3)), np.ones(3))
    np.testing.assert_array_equal(weighting.weights(np.zeros((2, 3))), np.ones((2, 3)))
    assert weighting.own_units
    assert not any(other.own_units for other in (*WEIGHTINGS.values(), OwnWeighting))


def test_a_user_at_home_counts_in_full_where_the_records_are():
    """So that only users of one silo may be weighed so (`Weighting.one_silo_each`)."""
    np.testing.assert_array_equal(HomeWeighting().own_weights(1, (3, 4)), np.ones(4))
    apart = {name for name, weighting in WEIGHTINGS.items() if weighting.one_silo_each}
    assert apart == {"home"}


class Doubled(Weighting):
    """Weights that break the bound."""

    def weights(self, counts):
        return np.full(counts.shape, 2.0 / len(counts))


def test_weights_beyond_the_sensitivity_bound_are_refused():
    """Noise is made for a sum of one: more, or a negative weight beside a larger one, moves the sum
    further."""
    half = np.full((2, 3), 0.5)
    assert bounded_weights(half) is half
    assert bounded_weights(np.eye(2)).sum() == 2
    for silo, off in ((0, 1e-9), (1, -0.500001)):
        wrong = half.copy()
        wrong[silo, 1] += off
        with pytest.raises(ValueError, match="sensitivity bound"):
            bounded_weights(wrong)
    with pytest.raises(ValueError, match="sensitivity bound"):
        bounded_weights(half * np.nan)
    with pytest.raises(ValueError, match="sensitivity bound"):
        Doubled().own_weights(0, (2, 3))


@pytest.mark.parametrize("weighting", [UniformWeighting(), OwnWeighting()])
def test_a_silo_makes_the_row_that_everybody_would_give_it(weighting):
    for silo in range(4):
        own = weighting.own_weights(silo, (4, 4))
        np.testing.assert_array_equal(
            own, weighting.weights(np.zeros((4, 4), dtype=np.int64))[silo]
        )
        np.testing.assert_array_equal(own, Weighting.own_weights(weighting, silo, (4, 4)))


@pytest.mark.parametrize("weighting", [UniformWeighting(), RecordWeighting(), OwnWeighting()])
def test_a_row_from_somebody_else_is_looked_at(weighting):
    counts = np.array([4, 1, 7])
    weighting.check_row(np.array([0.0, 1.0, 0.5]), counts)
    for shape in (
        [0.1, 0.1, 0.1],
        np.full(2, 0.1),
        np.full((3, 1), 0.1),
        np.full(3, 0.1, dtype=np.float32),
    ):
        with pytest.raises(ValueError, match="not 3 numbers"):
            weighting.check_row(shape, counts)
    for value in (-1e-9, 1 + 1e-9, np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            weighting.check_row(np.array([0.1, value, 0.1]), counts)


def test_a_weight_for_a_user_without_records_is_refused():
    RecordWeighting().check_row(np.array([0.0, 0.5]), np.array([0, 1]))
    with pytest.raises(ValueError, match="without records here"):
        RecordWeighting().check_row(np.array([1e-9, 0.5]), np.array([0, 1]))


@pytest.mark.parametrize("weighting", [UniformWeighting(), RecordsInFull()])
def test_equal_weights_take_the_room_of_one(weighting):
    """10,000 silos each keep a row for every user."""
    assert weighting.own_weights(0, (4, 1000)).strides == (0,)


@pytest.mark.parametrize(
    ("round", "takes_part"),
    [(1, [1, 0, 0, 1, 0]), (2, [0, 1, 0, 0, 1]), (3, [0, 0, 1, 0, 0]), (4, [1, 0, 0, 1, 0])],
)
def test_users_take_turns_by_their_numbers(round, takes_part):
    bounds = Users(turns=3).bounds(Federation(5, 2, 1), round)
    assert bounds.tolist() == takes_part
