"""Queries for tests that need an exchange and no algorithm."""

from __future__ import annotations

import math

from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.rounds.plan import UPDATE, Federation
from fedpriv.rounds.query import Exchange, Query
from fedpriv.util.streams import Streams

SYSTEM = Streams(0, system=True)


def query_for(
    aggregation,
    silos,
    round=1,
    *,
    place=0,
    streams=SYSTEM,
    users=1,
    size=1,
    mechanism=Gaussian(20.0, 1.0),  # noqa: B008
    sampled=None,
    user_rate=1.0,
):
    """A query without events to silos, by their number or their indices, over `users` users, for
    contributions of `size` coordinates; where the aggregation asks for no bound, of any length."""
    invited = tuple(range(silos)) if isinstance(silos, int) else tuple(silos)
    n_summed, n_most = aggregation.cohort_size(len(invited))
    encoding = aggregation.encoding(
        n_most or n_summed, math.inf, Federation(users, len(invited), size), mechanism
    )
    return Query(
        UPDATE,
        round,
        invited,
        n_summed,
        size,
        mechanism,
        encoding,
        (),
        streams,
        place=place,
        sampled=sampled,
        user_rate=user_rate,
        n_most=n_most,
        exchange=Exchange(n_units=users),
    )
