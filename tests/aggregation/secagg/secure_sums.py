"""Small secure sums for tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st
from parties_of_generators import Protocols, dropping, run
from queries import SYSTEM, query_for

from fedpriv.aggregation.base import SERVER
from fedpriv.aggregation.secagg.aggregation import SecAgg
from fedpriv.aggregation.secagg.graph import Sparse
from fedpriv.errors import AggregationAbortedError
from fedpriv.rounds.local_job import LocalJob

PHASES = ["AdvertiseKeys", "ShareKeys", "MaskedInputCollection", "ConsistencyCheck", "Unmasking"]


@dataclass(frozen=True)
class OnRing(SecAgg):
    """On a graph of given numbers, safe or not."""

    sparse: Sparse | None = None

    def sparse_graph(self, silos):
        return self.sparse


def names(silos):
    return [f"silo{s}" for s in range(silos)]


def ready(aggregation, silos):
    """The protocols after the set-up, with one unit that counts the same everywhere."""
    return Protocols(aggregation, tuple(range(silos))).ready(np.ones((silos, 1), dtype=np.int64))


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


@st.composite
def schedules(draw, kind=SecAgg, least=1, everybody=False):
    """Terms, who sends how many messages before dropping out, and the seed of the server's draws.
    least: of silos. everybody: all silos are candidates."""
    silos = draw(st.integers(least, 6))
    candidates = silos if everybody else draw(st.integers(silos // 2 + 1, silos))
    cohort = draw(st.integers(silos // 2 + 1, candidates))
    threshold = draw(st.integers(candidates // 2 + 1, cohort))
    count = st.sampled_from([5, 5, 5, 5, 5, 4, 3, 2, 1, 0])
    sends = draw(st.lists(count, min_size=silos, max_size=silos))
    aggregation = kind(threshold=threshold, cohort=cohort, candidates=candidates)
    return aggregation, sends, draw(st.integers(0, 2**20))


def leaving(silo, sends):
    """A silo that hears the broadcast, sends so many messages, and is never heard of again."""
    return dropping(silo, 1 + sends)


def total_of(cast):
    """The server's total."""
    return run(cast)[SERVER]


def refused(cast, match):
    """Run a query that has to end without a sum, and with this message."""
    with pytest.raises(AggregationAbortedError, match=match):
        run(cast)
