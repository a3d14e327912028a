"""Users of at most k records, for methods whose unit is the record: k is fixed without a look at
the data, further records do not train, and what k records move is certified for a user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.data.allocation import Allocation
from fedpriv.data.flags import flags, select
from fedpriv.errors import require
from fedpriv.rounds.plan import ObservedRelease, Observer, Plan

KEY = "algo.records_per_user"


def require_records_per_user(k: int | None) -> None:
    """Raise ConfigError for a number of records that no user could have."""
    require(k is None or k >= 1, KEY, k, "a positive integer, or null for no user's guarantee")


def bounded(allocation: Allocation, k: int | None) -> Allocation:
    """The allocation in which each user trains on at most k records, over all silos; None: on
    all.
    """
    return allocation if k is None else select(allocation, flags(allocation.counts(), k), k)


def user_assumptions(k: int, adjacency: str) -> tuple[str, ...]:
    """What a user's certificate rests on beyond a record's."""
    how = "are replaced by as many" if adjacency == REPLACE else "are all removed, or added"
    return f"at most {k} records of a user train, over all silos", f"a user's records {how}"


def record_views(
    plan: Plan,
    see: Callable[[Observer], ObservedRelease],
    k: int | None,
    *,
    assumptions: tuple[str, ...],
    scope: str,
) -> tuple[Event, ...]:
    """The events of one silo's unsampled Gaussian releases under replacement of a record, and of a
    user unless k is None.

    see: what a record moves; what it claims is about records alone.
    """
    of_records = plan.observed_events(
        see, unit="record", adjacency=REPLACE, assumptions=assumptions, scope=scope
    )
    if k is None:
        return of_records
    return of_records + plan.observed_events(
        lambda observer: replace(see(observer), claimed=None),
        unit="user",
        adjacency=REPLACE,
        assumptions=(*assumptions, *user_assumptions(k, REPLACE)),
        scope=scope,
        group_size=k,
    )
