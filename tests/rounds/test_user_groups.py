import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.errors import ConfigError
from fedpriv.rounds.user_groups import UserGroup, membership


@given(weights=st.lists(st.integers(1, 9), min_size=1, max_size=5), n_users=st.integers(60, 400))
def test_shares_are_met_to_one_user_and_spread_over_the_numbers(weights, n_users):
    shares = np.array(weights) / sum(weights)
    groups = tuple(UserGroup(f"g{i}", 1.0, share=share) for i, share in enumerate(shares))
    found = membership(groups, n_users)
    sizes = np.bincount(found, minlength=len(groups))
    assert sizes.sum() == n_users
    assert np.abs(sizes - shares * n_users).max() <= 1
    # Data sets often number users by how many records they have. Both halves are alike.
    first = np.bincount(found[: n_users // 2], minlength=len(groups))
    assert np.abs(first - sizes / 2).max() <= 4


def test_lists_come_first_and_shares_divide_the_rest():
    groups = (
        UserGroup("rest", 1.0, share=0.5),
        UserGroup("named", 0.5, users=(0, 2)),
        UserGroup("other", 0.25, share=0.5),
    )
    found = membership(groups, 6)
    assert found[[0, 2]].tolist() == [1, 1]
    assert np.bincount(found).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([UserGroup("a", 1.0, users=(7,))], r"algo.budgets.a.users=7: users from 0 to 3"),
        ([UserGroup("a", 1.0, users=(0, 1))], "2 users left"),
        (
            [UserGroup("a", 1.0, users=(0, 1, 2, 3)), UserGroup("b", 1.0, share=1.0)],
            "algo.budgets.b=0 users: a group of at least one",
        ),
    ],
)
def test_every_user_has_a_group_and_every_group_a_user(groups, text):
    with pytest.raises(ConfigError, match=text):
        membership(tuple(groups), 4)


@pytest.mark.parametrize("bound", [0.0, -1.0, 1.5, float("nan")])
def test_no_group_has_a_bound_above_that_of_the_mechanism(bound):
    with pytest.raises(ValueError, match="bound"):
        UserGroup("a", bound, share=1.0)
