"""Which records ULDP-GROUP-k keeps: at most k of each user, over all silos together.

Kato et al., Uldp-FL (PVLDB 2024), baseline ULDP-GROUP-k. Symbols: n_su -> counts[s, u], b_su ->
flags[s, u].

A user's flags are a function of k and of this user's own counts, so adding or removing one user
changes the training records by at most k: a record-level guarantee becomes a user-level one by
group privacy. The paper's script goes on where the previous user stopped; then one user's absence
moves the flags of others, and that step of the proof fails.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fedpriv.data.allocation import Allocation
from fedpriv.data.stability import truncation
from fedpriv.errors import DataError, require

KEY = "algo.group_size"


def group_size(rule: str | int, counts: np.ndarray) -> int:
    """Records k that a user may keep: `rule` itself, or "max" or "median" of the users' totals.

    counts: (S, U) training records per silo and user. "max" is that of the user with most records,
    so that nothing is dropped; "median" is over users with at least one record, rounded down. Both
    look at the private histogram of records per user and reveal something of it that no epsilon
    counts; only a k fixed without looking at data is sound. Raises ConfigError for any other rule,
    DataError where no user has a record.
    """
    if rule not in ("max", "median"):
        positive = isinstance(rule, int | np.integer) and not isinstance(rule, bool) and rule >= 1
        require(positive, KEY, rule, "a positive integer, max or median")
        return int(rule)
    totals = counts.sum(axis=0)
    totals = totals[totals > 0]
    if not len(totals):
        raise DataError(f"{KEY}={rule}: no user has a training record")
    return int(totals.max() if rule == "max" else np.median(totals))


def flags(counts: np.ndarray, k: int, group: int = 1) -> np.ndarray:
    """How many records of each user each silo keeps, (S, U) int64.

    Every user's records are flagged one silo after the other, one a silo and round starting with
    silo 0, until k are flagged or none is left. So 0 <= flags <= counts, and a user keeps min(k,
    records of this user).

    counts: (S, U).
    group: records are flagged `group` at a time (2 for Cox losses, which need pairs) and what does
        not fill a group is dropped; k is rounded down to whole groups, so a total never exceeds k.
        Raises ConfigError where k is below `group`.
    """
    require(
        k >= group, KEY, k, f"at least {group}, the records that one loss of this data set needs"
    )
    units = counts // group
    budget = k // group
    # After r full rounds a silo has flagged min(units, r): find each user's last full round by
    # bisection.
    low = np.zeros(counts.shape[1], dtype=np.int64)
    high = np.full_like(low, units.max(initial=0))
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = np.minimum(units, middle).sum(axis=0) <= budget
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle - 1)
    full = np.minimum(units, low)
    # The broken last round gives one to each of the first silos that still have some.
    left = units > low
    last = left & (left.cumsum(axis=0) <= budget - full.sum(axis=0))
    return np.asarray((full + last) * group, dtype=np.int64)


def select(
    allocation: Allocation,
    flags: np.ndarray,
    k: int,
    group: int = 1,
    rule: str | int | None = None,
) -> Allocation:
    """The allocation in which silo s trains on the first flags[s, u] records of user u, in data-set
    order.

    Only records that trained before are counted or kept.

    k: bound on a user's flags in all silos, from then on the allocation's `records_per_user`.
    group: as in `flags`; all numbers must be multiples of it, so that in `SiloData` rows 0..group -
        1, group..2 group - 1, ... each belong to one user. Raises ValueError otherwise, for a user
        with more than k flags, and for more flags than records.
    rule: what k was found by (`group_size`); None: it is fixed without a look at the data.
    """
    if (flags % group).any():
        raise ValueError(f"flags must come in groups of {group} records")
    if (flags.sum(axis=0) > k).any():
        raise ValueError(f"a user keeps at most {k} records")
    if (
        flags.shape != (allocation.n_silos, allocation.n_users)
        or (flags > allocation.counts()).any()
    ):
        raise ValueError("flags and allocation disagree about silos, users or their records")
    rows = np.flatnonzero(allocation.trains)
    silo = allocation.silo[rows]
    user = allocation.user[rows]
    order = np.lexsort((user, silo))  # stable, so data-set order within a silo and user
    cell = (silo * allocation.n_users + user)[order]
    rank = np.arange(len(cell)) - np.searchsorted(cell, cell)
    rows = rows[order]
    silo = silo[order]
    user = user[order]
    trains = np.zeros_like(allocation.trains)
    trains[rows[rank < flags[silo, user]]] = True
    stability = allocation.stability.then(truncation(k if rule is None else rule, group))
    return dataclasses.replace(allocation, trains=trains, records_per_user=k, stability=stability)
