"""Small secure sums for tests."""

from __future__ import annotations

import numpy as np
from parties_of_generators import Protocols, dropping, run
from queries import SYSTEM, query_for

from fedpriv.aggregation.base import SERVER
from fedpriv.rounds.local_job import LocalJob

PHASES = ["AdvertiseKeys", "ShareKeys", "MaskedInputCollection", "ConsistencyCheck", "Unmasking"]


def names(silos):
    return [f"silo{s}" for s in range(silos)]


def ready(aggregation, silos):
    """The protocols after the set-up, with one unit that counts the same everywhere."""
    protocols = Protocols(aggregation, tuple(range(silos)))
    run(protocols.setup(np.ones((silos, 1), dtype=np.int64)))
    return protocols


def parties(protocols, vectors, round=1, *, place=0, streams=SYSTEM):
    updates = {
        name: LocalJob(iter(()), np.asarray(vector, float))
        for name, vector in zip(protocols.names, vectors)
    }
    size = len(vectors[0])
    query = query_for(
        protocols.aggregation, len(vectors), round, place=place, streams=streams, size=size
    )
    return protocols.query(query, updates)


def leaving(silo, sends):
    """A silo that hears the broadcast, sends so many messages, and is never heard of again."""
    return dropping(silo, 1 + sends)


def total_of(cast):
    """The server's total."""
    return run(cast)[SERVER]
