"""Records, and users of at most k training records, as protected units.

k is fixed independently of the data, and further records of a user do not train. The certificate of
a user is that of a group of k records.
"""

from __future__ import annotations

from fedpriv.accountants.events import REPLACE
from fedpriv.certificates.request import Target
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import flags, select
from fedpriv.errors import require

KEY = "algo.records_per_user"


def require_records_per_user(k: int | None) -> None:
    """Raise ConfigError for an invalid number of records."""
    require(k is None or k >= 1, KEY, k, "a positive integer, or null for no user's guarantee")


def require_gradients_of_records(data: DataSet) -> None:
    """Raise ConfigError for data whose loss compares records: a single record then has no gradient
    to clip."""
    allowed = (
        "another data set: its loss compares records, so that one record has no gradient of its own"
    )
    require(data.records_per_draw == 1, "data", type(data).__name__.lower(), allowed)


def limit_records(allocation: Allocation, k: int | None) -> Allocation:
    """The allocation in which each user trains on at most k records, over all silos. k = None: on
    all records."""
    return allocation if k is None else select(allocation, flags(allocation.counts(), k), k)


def record_targets(k: int | None, adjacency: str = REPLACE) -> tuple[Target, ...]:
    """The targets: a record and, unless k is None, a user of at most k records."""
    if k is None:
        return (Target("record", adjacency),)
    how = "are replaced by as many" if adjacency == REPLACE else "are all removed, or added"
    rests_on = (
        f"at most {k} records of a user train, over all silos",
        f"a user's records {how}",
    )
    unchanged = ("a replaced record keeps its owner and its silo",) if adjacency == REPLACE else ()
    record = Target("record", adjacency, assumptions=unchanged)
    return record, Target("user", adjacency, k, rests_on)
