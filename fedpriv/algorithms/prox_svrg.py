"""Prox-SVRG: steps along the full gradient at an anchor, corrected by a batch's gradient
difference.

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Algorithms 1 (Prox-SVRG) and 2 (Prox-PL-SVRG). Symbols: Q -> inner_steps, E -> epochs, S
-> rounds / (epochs * inner_steps), wbar -> slot "anchor", gbar -> slot "anchor_gradient", s1 and s2
-> the noises of queries "gradient" and "difference".

An epoch is Q rounds. In its first round the model becomes the anchor, and the silos send their full
gradients there. In every round they send, for each record of a batch, the difference of two clipped
gradients, at the model and at the anchor. A record moves the mean of these differences by 4L / K.
In the first round of an epoch the two points are equal and the message is pure noise, as printed.
Gradients and differences share one budget. The constants of the paper's noise are unknown, so there
is no claim here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.algorithms.base import require_counts
from fedpriv.algorithms.gradient_queries import DIFFERENCE, GRADIENT
from fedpriv.algorithms.sampled_method import DifferenceMethod
from fedpriv.errors import require_positive
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State


@dataclass(frozen=True)
class ProxSvrg(DifferenceMethod):
    """Algorithms 1 and 2.

    inner_steps: Q, rounds of an epoch.
    epochs: E, epochs of a run of Algorithm 2, which starts from the output of the run before. With
        released=last this equals Algorithm 1. None: Algorithm 1, one run over all rounds.
    """

    inner_steps: int
    epochs: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("algo", self, "inner_steps")
        require_counts(self, "epochs")

    @property
    def label(self) -> str:
        return "Prox-SVRG" if self.epochs is None else "Prox-PL-SVRG"

    @property
    def run_length(self) -> int:
        """Rounds of a run."""
        return self.rounds if self.epochs is None else self.epochs * self.inner_steps

    claims = None

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        last = self.epochs is not None and self.released == "last"
        return {**super().idle_keys(plan), **({"epochs": "algo.released=last"} if last else {})}

    def query_names(self, round: int) -> tuple[str, ...]:
        return (GRADIENT, DIFFERENCE) if (round - 1) % self.inner_steps == 0 else (DIFFERENCE,)

    def counted(self, name: str) -> float:
        return self.rounds / self.inner_steps if name == GRADIENT else float(self.rounds)

    def size(self, name: str, records: int) -> int:
        return records if name == GRADIENT else super().size(name, records)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        state = super().init(params, plan)
        return state.with_params(params, anchor=params, anchor_gradient=np.zeros_like(params))

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        points = {"params": state.params}
        return points if query.name == GRADIENT else points | {"previous": state.slots["anchor"]}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        mean = total.vector / len(total.silos)
        if query.name == GRADIENT:
            return state.with_params(state.params, anchor=state.params, anchor_gradient=mean)
        direction = state.slots["anchor_gradient"] + mean
        seen = (query.round - 1) % self.run_length + 1
        after = self.stepped(state, direction, round=query.round, seen=seen, plan=plan)
        restarts = self.epochs is not None and seen == self.run_length
        return replace(after, params=after.slots["output"]) if restarts else after
