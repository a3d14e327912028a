"""Known users stay users: where records name their users and silos, nobody draws others unasked.

A user-level epsilon covers the users of the allocation. An allocator that draws them over the
users that a data set names gives an epsilon that covers no real user: the records of one may lie
with several drawn users, and a drawn user may own records of several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedpriv.errors import ConfigError, require

if TYPE_CHECKING:
    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import DataSet, Records

KEY = "allocator.invent_users"

INVENTED = (
    "allocator.invent_users=true draws users over those that the data set names: no epsilon of a "
    "user covers a real one"
)
"""What status.json says of a run with invented users."""


def require_consent(invents: bool, data: DataSet, records: Records | None = None) -> None:
    """Raise ConfigError where users are known and an allocator draws others, unless it `invents`.

    records: the training records, None before they are loaded.
    """
    known = data.natural_users or (records is not None and records.user is not None)
    require(invents or not known, KEY, "false", f"true {_remedy(data, records)}")


def require_kept(allocation: Allocation, records: Records, data: DataSet, invents: bool) -> None:
    """Raise ConfigError unless an allocation keeps the users and the silos that records name.

    invents: whether other users are drawn on purpose; known silos stay silos even so.
    """
    users = records.user
    if users is None and data.natural_users:
        users = np.arange(len(records))
    require(
        invents or users is None or _same_groups(allocation.user, users),
        KEY,
        "false",
        f"true {_remedy(data, records)}",
    )
    if records.silo is not None and not np.array_equal(allocation.silo, records.silo):
        name = type(data).__name__
        raise ConfigError(
            "allocator", "...", f"one that keeps the silos that the records of {name} name"
        )


def _remedy(data: DataSet, records: Records | None) -> str:
    """What is allowed beside `allocator.invent_users=true`, and why."""
    name = type(data).__name__
    sit = data.natural_silos is not None or (records is not None and records.silo is not None)
    own = f"allocator={'natural' if sit else 'by_user'}"
    if not data.natural_users:
        own += f" with natural_users = True in {name}"
    keeps = f", or {own}" if data.records_per_draw == 1 else ""
    return f"for a simulation whose epsilon covers no real user{keeps}; {name} names its users"


def _same_groups(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two labellings (n,) cut n records into the same groups."""
    first, own = np.unique(one, return_inverse=True)
    second, known = np.unique(other, return_inverse=True)
    pairs = len(np.unique(own * len(second) + known))
    return pairs == len(first) == len(second)
