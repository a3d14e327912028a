"""Groups of users, each with its own bound on a user's contribution.

Who is in which group is public and fixed before any data are read, and so is the round after which
a group takes no more part. A group may be a list of users, or a share of those that no list names.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpriv.errors import require

PUBLIC_GROUPS = "who is in which group of users is public and does not depend on data"
SPREAD = (5**0.5 - 1) / 2
"""Multiples of the golden ratio, modulo 1, spread consecutive numbers evenly."""


@dataclass(frozen=True)
class UserGroup:
    """One group of users.

    name: the group in epsilon.csv.
    bound: bound on a user's contribution, relative to that of the mechanism; above 0, at most 1.
    share: share of the users that no list names; 0 with a list.
    users: numbers of the group's users; empty with a share.
    last_round: the last round that the group takes part in; None: it takes part in all.
    epsilon: the group's budget. A run ends before the first round that would exceed one; None: no
        limit.
    """

    name: str
    bound: float
    share: float = 0.0
    users: tuple[int, ...] = ()
    last_round: int | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.bound <= 1:
            raise ValueError(f"group {self.name}: a bound of {self.bound} is not in (0, 1]")

    def takes_part(self, round: int) -> bool:
        """Whether the group takes part in a round."""
        return self.last_round is None or round <= self.last_round


@lru_cache(maxsize=64)
def membership(groups: tuple[UserGroup, ...], n_users: int) -> np.ndarray:
    """The position of each user's group in `groups`, (n_users,) int64; callers must not change it.

    Shares are spread evenly over the numbers of users. Raises ConfigError for a user without a
    group, and for a group without users.

    >>> groups = (UserGroup("strict", 0.5, share=0.5), UserGroup("open", 1.0, share=0.5))
    >>> membership(groups, 6).tolist()
    [0, 1, 0, 1, 1, 0]
    """
    found = np.full(n_users, -1)
    for place, group in enumerate(groups):
        largest = max(group.users, default=0)
        allowed = f"users from 0 to {n_users - 1}"
        require(largest < n_users, f"algo.budgets.{group.name}.users", largest, allowed)
        found[list(group.users)] = place
    rest = np.flatnonzero(found < 0)
    shared = [place for place, group in enumerate(groups) if group.share]
    allowed = f"lists that name all {n_users} users, or groups with a share of the rest"
    require(bool(shared) or not len(rest), "algo.budgets", f"{len(rest)} users left", allowed)
    ends = np.rint(np.cumsum([groups[place].share for place in shared]) * len(rest)).astype(int)
    spread = rest[np.argsort((np.arange(len(rest)) * SPREAD) % 1.0, kind="stable")]
    for place, own in zip(shared, np.split(spread, ends[:-1])):
        found[own] = place
    sizes = np.bincount(found, minlength=len(groups))
    for group, size in zip(groups, sizes):
        allowed = f"a group of at least one of the {n_users} users"
        require(size > 0, f"algo.budgets.{group.name}", f"{size} users", allowed)
    return found


def members(groups: tuple[UserGroup, ...], name: str, n_users: int) -> np.ndarray:
    """The users of group `name`, (k,) int64; "": all users."""
    if not name:
        return np.arange(n_users)
    place = [group.name for group in groups].index(name)
    return np.flatnonzero(membership(groups, n_users) == place)
