"""The records that ULDP-GROUP-k keeps: at most k of each user, over all silos.

Kato et al., Uldp-FL (PVLDB 2024), baseline ULDP-GROUP-k. Symbols: n_su -> counts[s, u], b_su ->
flags[s, u].

A user's flags depend only on k and on this user's own counts. Adding or removing a user therefore
changes at most k training records, and group privacy turns a record-level guarantee into a
user-level one. The paper's script instead continues where the previous user stopped. There, the
absence of a user changes the flags of others, and this step of the proof fails.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fedpriv.data.allocate import Allocation
from fedpriv.data.stability import truncation
from fedpriv.errors import DataError, require

KEY = "algo.group_size"


def group_size(rule: str | int, counts: np.ndarray) -> int:
    """The number k of records that a user may keep.

    rule: k itself, "max" (the largest number of records of a user; nothing is dropped) or "median"
        (over users with records, rounded down).
    counts: (S, U) training records per silo and user.

    "max" and "median" depend on the private histogram of records per user, and no epsilon covers
    what they reveal; only a k chosen without the data is sound. Raises DataError if no user has a
    record.
    """
    if rule not in ("max", "median"):
        return int(rule)
    totals = counts.sum(axis=0)
    totals = totals[totals > 0]
    if not len(totals):
        raise DataError(f"{KEY}={rule}: no user has a training record")
    return int(totals.max() if rule == "max" else np.median(totals))


def flags(counts: np.ndarray, k: int, group: int = 1) -> np.ndarray:
    """Number of records of each user that each silo keeps, (S, U) int64.

    For every user, the silos flag records in rounds: in each round, every silo in order flags one
    record, until k are flagged or none is left. So 0 <= flags <= counts, and a user keeps min(k,
    number of the user's records).

    counts: (S, U) training records per silo and user.
    k: largest number of flags of a user.
    group: number of records flagged at a time (2 for Cox losses, which need pairs). Incomplete
        groups are dropped, and k is rounded down to whole groups.

    Raises ConfigError if k is below `group`.
    """
    require(
        k >= group, KEY, k, f"at least {group}, the records that one loss of this data set needs"
    )
    units = counts // group
    budget = k // group
    # After r full rounds a silo has flagged min(units, r). Bisection finds each user's last full
    # round.
    low = np.zeros(counts.shape[1], dtype=np.int64)
    high = np.full_like(low, units.max(initial=0))
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = np.minimum(units, middle).sum(axis=0) <= budget
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle - 1)
    full = np.minimum(units, low)
    # In the incomplete last round, each of the first silos with records left flags one.
    left = units > low
    last = left & (left.cumsum(axis=0) <= budget - full.sum(axis=0))
    return np.asarray((full + last) * group, dtype=np.int64)


def select(
    allocation: Allocation, k: int, group: int = 1, rule: str | int | None = None
) -> Allocation:
    """The allocation in which silo s trains on the first of its training records of each user, in
    data-set order, as many as `flags` says.

    Rows 0..group - 1, group..2 group - 1, ... of a `SiloData` then belong to one user each.

    k: largest number of flags of a user; it becomes the allocation's `records_per_user`.
    group: see `flags`.
    rule: what k was found by (`group_size`); None: it is fixed without a look at the data.
    """
    kept = flags(allocation.counts(), k, group)
    rows = np.flatnonzero(allocation.trains)
    silo = allocation.silo[rows]
    user = allocation.user[rows]
    order = np.lexsort((user, silo))  # stable, so data-set order within a silo and user
    pair = (silo * allocation.n_users + user)[order]
    rank = np.arange(len(pair)) - np.searchsorted(pair, pair)
    trains = np.zeros_like(allocation.trains)
    trains[rows[order][rank < kept[silo, user][order]]] = True
    stability = allocation.stability.then(truncation(k if rule is None else rule, group))
    return dataclasses.replace(allocation, trains=trains, records_per_user=k, stability=stability)
