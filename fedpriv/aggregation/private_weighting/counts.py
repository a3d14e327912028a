"""Record counts that private weighting can serve: 1 <= N_u <= N_max for every user, though nobody
knows N_u.

A total above N_max may not divide C_LCM, and would decrypt to a garbage number as large as n. That
would be too late: the server would already hold a function of the counts without noise. So each
silo bounds its own part before it sends anything. If it refuses, all parties see that some user has
many records there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpriv.errors import AggregationAbortedError

NAMED = 10
"""Users named in an error."""


class CountsRefusedError(AggregationAbortedError):
    """Record counts that cannot be served. The set-up ends and nothing is released. Honest counts
    never change, so the first set-up fails, and with it the run. Later set-ups fail only if a party
    lies."""


def refuse_many(name: str, counts: np.ndarray, limit: int) -> None:
    """At a silo: raise CountsRefusedError for a count above `limit`. The error contains only public
    numbers."""
    if counts.max(initial=0) > limit:
        raise CountsRefusedError(
            f"{name} has a user with more than {limit} records, aggregation.n_max over the "
            "number of silos: raise "
            "aggregation.n_max, or set aggregation.count_cap to weigh by counts that are cut there"
        )


def refuse_none(totals: Sequence[int]) -> None:
    """At the server: raise CountsRefusedError for users whose blinded total is zero."""
    absent = [str(user) for user, total in enumerate(totals) if total == 0]
    if absent:
        names = ", ".join(absent[:NAMED]) + (" and others" if len(absent) > NAMED else "")
        raise CountsRefusedError(
            f"no silo has a record of user {names}: aggregation=private_weighting shows this to "
            "the server; leave such "
            "users out of the list when linking records (allocator.n_users)"
        )
