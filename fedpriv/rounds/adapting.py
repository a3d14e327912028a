"""The bound of a mechanism that adapts it: public state, computed from noised sums alone.

The bound of a round is in a slot of the state. It goes down with the broadcast, and each silo
bounds its contributions with it. After the round, the holder of the state reads the sum of clipped
vectors and the next bound off the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import BOUND, Query, Total
from fedpriv.rounds.state import State


def with_bounds(state: State, plan: Plan) -> State:
    """The first state, with the bound of the first round if it adapts."""
    for parameters in plan.query_parameters.values():
        if parameters.mechanism.marks:
            first = np.array([parameters.mechanism.clip])
            state = replace(state, slots={**state.slots, BOUND: first})
    return state


def bound_of(state: State, query: Query) -> dict[str, np.ndarray]:
    """What the broadcast has beside a method's own vectors: the round's bound, if it adapts."""
    return {BOUND: state.slots[BOUND]} if query.mechanism.marks else {}


def at_bound(query: Query, down: Mapping[str, np.ndarray]) -> tuple[Query, dict[str, np.ndarray]]:
    """The query with the bound of a broadcast that fits `Query.broadcast_schema`, and the method's
    own vectors."""
    own = dict(down)
    if query.mechanism.marks:
        query = replace(query, mechanism=query.mechanism.at(float(own.pop(BOUND)[0])))
    return query, own


def adapted(
    state: State, query: Query, total: Total, units: float
) -> tuple[Total, dict[str, np.ndarray]]:
    """The sum of clipped vectors in place of the total, and the slot with the next bound, where the
    bound adapts.

    units: public estimate of the total weight of the contributions.
    """
    now = query.mechanism.at(float(state.slots[BOUND][0]))
    own, following = now.read(total.vector, units, query.round)
    return replace(total, vector=own), {BOUND: np.array([following])}
