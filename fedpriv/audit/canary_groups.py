"""Canaries of one group of users, where groups have bounds and epsilons of their own, and of the
first turn, where users take turns."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedpriv.audit.canary import Canaries
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.user_groups import members
from fedpriv.settings.experiment import Experiment

AnyCanaries = TypeVar("AnyCanaries", bound=Canaries)


def most_in_group(exp: Experiment, name: str) -> float:
    """The largest number of users that a group can have, however many users there are."""
    groups = [group for group in exp.algo.contributors.groups if group.name == name]
    return float(len(groups[0].users) or math.inf) if groups else math.inf


def _members(contributors: Contributors, name: str, n_users: int) -> np.ndarray:
    """The users of a group whose turn is the first, (k,) int64."""
    found = members(contributors.groups, name, n_users)
    return np.asarray(found[found % contributors.turns == 0])


def in_group(canaries: AnyCanaries, name: str) -> AnyCanaries:
    """The same canaries with numbers of users in group `name`, or in the first turn if `name` is
    empty.

    There are at least as many users as in the audited run, and more if the group's share needs it.
    """
    contributors = canaries.original.algo.contributors
    if not name and contributors.turns == 1:
        return canaries
    allocation = canaries.allocation
    n_users = max(canaries.original.allocator.n_users, allocation.n_users)
    while len(found := _members(contributors, name, n_users)) < len(canaries):
        n_users *= 2
    known = np.unique(allocation.user)
    others = np.setdiff1d(known, canaries.users)
    own = found[: len(canaries)]
    free = np.setdiff1d(np.arange(n_users), own)
    number = np.zeros(allocation.n_users, dtype=np.int64)
    number[canaries.users] = own
    number[others] = free[: len(others)]
    renumbered = replace(allocation, user=number[allocation.user], n_users=n_users)
    return replace(canaries, allocation=renumbered, users=own)
