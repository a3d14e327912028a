"""Localized accelerated MB-SGD: phases on disjoint records, each around the model of the phase
before.

Gao, Lowy, Zhou, Wright: Private heterogeneous federated learning without a trusted server
revisited, ICML 2024 (arXiv 2407.09690). Symbols: tau -> phases, L -> clip, K -> batch_size,
w_(i-1) -> slot "centre", w_r -> State.params, w_r^ag -> slot "output".

Phase i uses n_i = floor(n / 2^i) records of each silo, which no other phase uses. It minimises

    their mean loss + lambda_i / 2 |w - w_(i-1)|^2   over the ball |w - w_(i-1)| <= 2 L / lambda_i

by accelerated stochastic approximation (AC-SA; Ghadimi, Lan: Optimal stochastic approximation
algorithms for strongly convex stochastic composite optimization I, 2012): silos send noised mean
gradients at a mix of two sequences of models, and the server takes the step. The server adds the
gradient of the regulariser, which no record changes, so only gradients of losses are clipped.

Privacy: as in `fedpriv.algorithms.gradient_method`. A record is in one phase. So the part of a
silo's records that a phase uses is a scope, and epsilon is that of one phase's releases (parallel
composition). A batch that is the whole part needs no amplification by sampling.

We had no text of the paper's constants, so there is no claim. From the method that it builds on
(Feldman, Koren, Talwar: Private stochastic convex optimization: optimal rates in linear time, STOC
2020) are the halved parts and lambda_i = 8^(i-1) lambda_1. As many rounds for each phase, and step
sizes from `global_lr`, are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from fedpriv.algorithms.gradient_method import GradientMethod
from fedpriv.algorithms.gradient_queries import GRADIENT
from fedpriv.certificates.sampling import Batches, HalvedParts
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require, require_positive
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

CENTRE, OUTPUT, PHASE = "centre", "output", "phase"


@dataclass(frozen=True)
class LocalizedMbSgd(GradientMethod):
    """The localized method.

    batch_size: K, at most a phase's records; None: all of them.
    global_lr: first step size of a phase, before its regulariser; 1 / (4 beta) for beta-smooth
        losses.
    phases: tau.
    regularisation: lambda_1, weight of the pull towards the start in the first phase.
    growth: lambda_(i+1) / lambda_i.
    """

    phases: int
    regularisation: float
    growth: float
    released: str = field(default="last", init=False)

    label = "Localized MB-SGD"
    claims = None
    rounds_alike = False
    shuffles = False  # the paper has no such form

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("algo", self, "regularisation", "growth")
        allowed = f"1 to {self.rounds}, the number of rounds"
        require(1 <= self.phases <= self.rounds, "algo.phases", self.phases, allowed)

    # -- phases ------------------------------------------------------------------------------------

    def phase(self, round: int) -> int:
        """The phase of a round, from 1."""
        return (round - 1) * self.phases // self.rounds + 1

    def step_of(self, round: int) -> int:
        """The number of a round in its phase, from 1."""
        before = -(-(self.phase(round) - 1) * self.rounds // self.phases)
        return round - before

    def last_round(self, federation: Federation) -> int | None:
        return self.rounds

    @property
    def batches(self) -> Batches:
        return HalvedParts()

    def size(self, name: str, records: int, part: int = 1) -> int:
        most = HalvedParts(part=part).drawn_from(records)
        return min(most, self.batch_size or most)

    def sizes(self, name: str, records: int) -> tuple[int, ...]:
        return tuple(self.size(name, records, part) for part in range(1, self.phases + 1))

    def draws(self, round: int, name: str) -> tuple[Batches, Callable[[int], int]]:
        part = self.phase(round)
        return HalvedParts(part=part), partial(self.size, name, part=part)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        allocation = super().training_records(allocation, data)
        smallest = int(allocation.silo_sizes().min())
        most = smallest.bit_length() - 1
        allowed = f"at most {most}, since the smallest silo has {smallest} records to halve"
        require(self.phases <= most, "algo.phases", self.phases, allowed)
        return allocation

    # -- a round -----------------------------------------------------------------------------------

    def query_names(self, round: int) -> tuple[str, ...]:
        return (GRADIENT,)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(params, {CENTRE: params, OUTPUT: params, PHASE: np.ones(1)})

    def _in_phase(self, state: State, round: int) -> State:
        """The state in the phase of a round. A new phase starts from the output of the last."""
        phase = self.phase(round)
        if state.slots[PHASE][0] == phase:
            return state
        start = state.slots[OUTPUT]
        return state.with_params(start, **{CENTRE: start, PHASE: np.full(1, float(phase))})

    def _weights(self, round: int) -> tuple[float, float, float]:
        """lambda_i, alpha_r and eta_r."""
        step = self.step_of(round)
        pull = self.regularisation * self.growth ** (self.phase(round) - 1)
        return pull, 2 / (step + 1), 2 / (self.global_lr * step * (step + 1))

    def _middle(self, state: State, round: int) -> np.ndarray:
        """w_r^md, where the round's gradients are taken."""
        pull, mix, rest = self._weights(round)
        old = (1 - mix) * (pull + rest)
        new = mix * ((1 - mix) * pull + rest)
        middle: np.ndarray = (old * state.slots[OUTPUT] + new * state.params) / (old + new)
        return middle

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {"params": self._middle(self._in_phase(state, query.round), query.round)}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        state = self._in_phase(state, query.round)
        pull, mix, rest = self._weights(query.round)
        middle = self._middle(state, query.round)
        centre = state.slots[CENTRE]
        gradient = total.vector / len(total.silos) + pull * (middle - centre)
        kept = (1 - mix) * pull + rest
        moved = (mix * pull * middle + kept * state.params - mix * gradient) / (pull + rest)
        moved = self.operator(moved, mix / (pull + rest))
        # A constraint f1 holds here and at the centre, and so at every point between.
        radius = 2 * query.mechanism.clip / pull
        length = float(np.linalg.norm(moved - centre))
        params = centre + (radius / length if length > radius else 1.0) * (moved - centre)
        output = mix * params + (1 - mix) * state.slots[OUTPUT]
        return state.with_params(params, **{OUTPUT: output})
