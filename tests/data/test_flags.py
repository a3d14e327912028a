from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedpriv.data.allocate import Allocation
from fedpriv.data.flags import flags, group_size, select
from fedpriv.errors import ConfigError, DataError

COUNTS = arrays(
    np.int64, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=st.integers(0, 12)
)


def one_by_one(counts, k, group=1, reset=True):
    """The rule as the paper tells it, a pointer that hands out one flag at a time.

    reset=False is the published script, whose pointer goes on where the previous user stopped.
    """
    flagged = np.zeros_like(counts)
    pointer = 0
    for u in range(counts.shape[1]):
        pointer = 0 if reset else pointer
        left = counts[:, u] // group
        for _ in range(min(k // group, left.sum())):
            while left[pointer] == 0:
                pointer = (pointer + 1) % len(counts)
            left[pointer] -= 1
            flagged[pointer, u] += group
            pointer = (pointer + 1) % len(counts)
    return flagged


@given(COUNTS, st.integers(1, 40), st.integers(1, 3))
def test_flags_agree_with_a_pointer_that_hands_them_out_one_by_one(counts, k, group):
    k = max(k, group)
    np.testing.assert_array_equal(flags(counts, k, group), one_by_one(counts, k, group))


def test_a_pointer_shared_by_the_users_moves_the_flags_of_others():
    """Without the first user, the second one's flags change. Those of `flags` stay."""
    counts = np.array([[2, 2], [1, 2]])
    for rule, stays in ((partial(one_by_one, reset=False), False), (flags, True)):
        same = np.array_equal(rule(counts, 3)[:, 1], rule(counts * [0, 1], 3)[:, 1])
        assert same == stays


def test_a_worked_example():
    # Records in three silos; k = 5. User 0: two full rounds would take 6, so the third silo gives
    # one.
    counts = np.array([[4, 0, 1], [4, 9, 0], [4, 1, 0]])
    np.testing.assert_array_equal(flags(counts, 5), [[2, 0, 1], [2, 4, 0], [1, 1, 0]])


def test_group_size_reads_the_totals_of_users_with_records():
    counts = np.array([[1, 0, 3, 2], [1, 0, 5, 1]])
    assert group_size("max", counts) == 8
    assert group_size("median", counts) == 3
    assert group_size("median", counts[:, :3]) == 5
    assert group_size(2, counts) == 2


@pytest.mark.parametrize("rule", ["max", "median"])
def test_no_records_have_no_group_size(rule):
    with pytest.raises(DataError, match="no user"):
        group_size(rule, np.zeros((2, 3), dtype=int))


def test_pairs_cannot_be_kept_with_k_of_one():
    with pytest.raises(ConfigError, match="at least 2"):
        flags(np.ones((1, 1), dtype=int), 1, group=2)


@st.composite
def allocations(draw):
    n, users, silos = draw(st.integers(0, 60)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    user, silo = (
        draw(arrays(np.int64, n, elements=st.integers(0, most - 1))) for most in (users, silos)
    )
    return Allocation(user, silo, draw(arrays(bool, n)), users, silos)


@given(allocations(), st.integers(1, 8))
def test_silos_keep_their_first_training_records(allocation, k):
    kept = flags(allocation.counts(), k)
    new = select(allocation, k)
    assert new.records_per_user == k
    np.testing.assert_array_equal(new.counts(), kept)
    left = kept.copy()
    for row in range(len(allocation.user)):
        cell = allocation.silo[row], allocation.user[row]
        expected = bool(allocation.trains[row] and left[cell] > 0)
        left[cell] -= expected
        assert new.trains[row] == expected


@given(allocations(), st.integers(2, 8), st.data())
def test_removing_a_user_leaves_the_training_records_of_all_others(allocation, k, data):
    gone = data.draw(st.integers(0, allocation.n_users - 1))
    trains = allocation.trains & (allocation.user != gone)
    without = Allocation(
        allocation.user, allocation.silo, trains, allocation.n_users, allocation.n_silos
    )
    for group in (1, 2):
        first, second = (select(a, k, group).trains for a in (allocation, without))
        others = allocation.user != gone
        np.testing.assert_array_equal(first[others], second[others])
        assert first[~others].sum() <= k
        assert not second[~others].any()
