"""Sums of earlier rounds in a message, and how the holder of the model takes them out again.

At a silo. It sends its weighted sum and those of earlier rounds, with the weights of the strategy,
under a fresh noise share. It has to remember its own sums without noise. This memory is raw:
it shows what noise should hide. It is sealed in the party: with noise from the operating system
no checkpoint, message or file contains it. A seeded simulation protects nobody,
and its checkpoint holds the memories, labelled as raw.

A silo whose process ends forgets its sums, and later messages lack them. One unit then moves these
messages less, so certificates hold. The holder of the model forgets its own past too where a whole
run is continued from a checkpoint, so that its estimates stay right. Where single silos are lost or
miss a round, it does not learn whose sums are missing: its estimates are off by what they lack.

At the holder of the model. It knows the totals, and inverts the strategy row by row. That uses
released values alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.mechanisms.strategy import Strategy
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

RAW = "raw sums/"
"""Prefix of a silo's memory of sums without noise; then the query's name."""
ESTIMATES = "estimates/"
"""Prefix of the slots with the estimates of earlier rounds; then the query's name."""
ROUNDS = " rounds"


@dataclass(frozen=True)
class Past:
    """Vectors of earlier rounds, the last one last.

    rounds: (k,) int64 round of each vector; 0: none.
    vectors: (k, size) float64.
    """

    rounds: np.ndarray
    vectors: np.ndarray

    @staticmethod
    def none(strategy: Strategy, size: int) -> Past:
        """No vectors, with room for as many as a strategy repeats."""
        most = strategy.bands - 1
        return Past(np.zeros(most, dtype=np.int64), np.zeros((most, size)))

    def repeated(self, strategy: Strategy, round: int) -> np.ndarray:
        """The part (size,) of a round's row that repeats these vectors."""
        found = np.zeros(self.vectors.shape[1])
        for past, vector in zip(self.rounds.tolist(), self.vectors):
            weight = strategy.weight(round - past) if 0 < past < round else 0.0
            if weight:
                found += weight * vector
        return found

    def then(self, round: int, vector: np.ndarray) -> Past:
        """These vectors with one more, less the oldest. Those of this round and of later ones are
        left out: a round that is done again replaces itself."""
        known = np.where(self.rounds < round, self.rounds, 0)
        rounds = np.append(known[1:], np.int64(round))
        return Past(rounds, np.concatenate([self.vectors[1:], vector[None]]))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of a memory; `read` reads them."""
        return {name: self.vectors, name + ROUNDS: self.rounds}

    @staticmethod
    def read(arrays: Mapping[str, np.ndarray], name: str) -> Past | None:
        """The vectors of this name; None if there are none."""
        if name not in arrays or name + ROUNDS not in arrays:
            return None
        return Past(arrays[name + ROUNDS], arrays[name])


def row(query: Query, past: Past | None, own: np.ndarray) -> tuple[np.ndarray, Past]:
    """A silo's row of the strategy, (size,) float64, before the noise; and what it then remembers.

    own: the silo's weighted sum of bounded contributions in this round, (size,) float64.
    """
    strategy = query.mechanism.mixing
    assert strategy is not None
    past = past or Past.none(strategy, query.size)
    mixed = strategy.coefficients[0] * own + past.repeated(strategy, query.round)
    return mixed, past.then(query.round, own)


def with_estimates(state: State, plan: Plan) -> State:
    """A state with room for the estimates of earlier rounds, and none yet: the first one, and that
    of a run whose silos have forgotten their sums."""
    slots = dict(state.slots)
    for name, parameters in plan.query_parameters.items():
        strategy = parameters.mechanism.mixing
        if strategy is not None:
            slots |= Past.none(strategy, plan.federation.n_parameters).arrays(ESTIMATES + name)
    return replace(state, slots=slots)


def estimated(state: State, query: Query, total: Total) -> tuple[Total, dict[str, np.ndarray]]:
    """The estimate of a round's own sum in place of the total, and the slots to keep."""
    strategy = query.mechanism.mixing
    if strategy is None:
        return total, {}
    name = ESTIMATES + query.name
    past = Past.read(state.slots, name) or Past.none(strategy, query.size)
    own = (total.vector - past.repeated(strategy, query.round)) / strategy.coefficients[0]
    return replace(total, vector=own), past.then(query.round, own).arrays(name)
