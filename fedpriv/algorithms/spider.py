"""SPIDER: a gradient estimate that is renewed once a phase and corrected by gradient differences.

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Algorithm 3 (FedProx-SPIDER, variant=proximal) and Algorithm 11 (variant=alternate). Symbols: q ->
phase, K1 -> anchor_batch_size, K2 -> batch_size, h_r -> slot "estimate", w_{r-1} -> slot
"previous", s1 and s2hat -> the noises of queries "gradient" and "difference".

- variant=proximal: in the first round of a phase the silos send gradients at w. In the other rounds
  they send differences of clipped gradients at w and at the previous model, which the server adds
  to its estimate. Then w = prox(w - eta h). With q = 1 this is MB-SGD.
- variant=alternate: as printed, there is no proximal step and a round has two steps. The first is
  w' = w - eta g along a new gradient g, the second w = w' - eta (g + d) with the difference d
  between w' and w. The paper's R rounds end with a gradient that has no use; here R rounds have R
  gradients and R differences.

The paper's noise gives the whole budget to gradients and again to differences, so the certified
zCDP is up to twice as much. The solver shares one budget. The paper's smaller noise s2 |w -
w_{r-1}| needs a proven smoothness and is not implemented (s2 = infinity, as in all of its
experiments).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import require_counts, require_one_of
from fedpriv.algorithms.gradient_queries import DIFFERENCE, GRADIENT
from fedpriv.algorithms.proximal import PROXIMAL
from fedpriv.algorithms.sampled_method import DifferenceMethod
from fedpriv.certificates.sampling import paper_batch
from fedpriv.errors import require, require_positive
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

if TYPE_CHECKING:
    from fedpriv.accountants.zcdp import SmallEpsilonClaim


class Proximal:
    """Algorithm 3. `Alternate` says what differs in Algorithm 11.

    operators: names of the proximal operators that the variant supports.
    """

    operators: tuple[str, ...] = tuple(PROXIMAL)

    def query_names(self, algo: Spider, round: int) -> tuple[str, ...]:
        """See `GradientMethod.query_names`."""
        return (GRADIENT,) if (round - 1) % algo.phase == 0 else (DIFFERENCE,)

    def anchor_size(self, algo: Spider, records: int) -> int:
        """K1 in a silo of `records` records, where `anchor_batch_size` is None."""
        factor = min(math.sqrt(algo.rounds), math.sqrt(algo.phase))
        return paper_batch(records, algo.rounds, factor)

    def idle_keys(self, algo: Spider) -> dict[str, str]:
        """See `Algorithm.idle_keys`."""
        # Every round renews the estimate, so there are no differences.
        names = ("batch_size", "difference_noise", "gradient_share") if algo.phase == 1 else ()
        return dict.fromkeys(names, f"algo.phase={algo.phase}")

    def counted(self, algo: Spider, name: str) -> float:
        """See `GradientMethod.counted`."""
        return max(algo.rounds / algo.phase, 1.0) if name == GRADIENT else float(algo.rounds)

    def claims(self) -> type[SmallEpsilonClaim]:
        """See `GradientMethod.claims`."""
        from fedpriv.accountants.zcdp import SmallEpsilonClaim

        return SmallEpsilonClaim

    def points(self, algo: Spider, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The new and the old point of a gradient difference."""
        return state.params, state.slots["previous"]

    def update(
        self, algo: Spider, state: State, query: Query, mean: np.ndarray, plan: Plan
    ) -> State:
        """The state after a query whose mean message is `mean`."""
        estimate = mean if query.name == GRADIENT else state.slots["estimate"] + mean
        slots = {"estimate": estimate, "previous": state.params}
        return algo.stepped(
            state, estimate, round=query.round, seen=query.round, plan=plan, **slots
        )


class Alternate(Proximal):
    """Algorithm 11."""

    operators = ("none",)

    def query_names(self, algo: Spider, round: int) -> tuple[str, ...]:
        return GRADIENT, DIFFERENCE

    def anchor_size(self, algo: Spider, records: int) -> int:
        return algo.size(DIFFERENCE, records)

    def idle_keys(self, algo: Spider) -> dict[str, str]:
        return {"phase": f"algo.variant={algo.variant}"}

    def counted(self, algo: Spider, name: str) -> float:
        return float(algo.rounds)

    def claims(self) -> type[SmallEpsilonClaim]:
        from fedpriv.accountants.zcdp import MomentsClaim

        return MomentsClaim

    def points(self, algo: Spider, state: State) -> tuple[np.ndarray, np.ndarray]:
        return state.params - algo.global_lr * state.slots["estimate"], state.params

    def update(
        self, algo: Spider, state: State, query: Query, mean: np.ndarray, plan: Plan
    ) -> State:
        if query.name == GRADIENT:
            return state.with_params(state.params, estimate=mean)
        both = 2 * state.slots["estimate"] + mean  # w' = w - eta g, then along g + d
        slots = {"previous": self.points(algo, state)[0]}
        return algo.stepped(state, both, round=query.round, seen=query.round, plan=plan, **slots)


VARIANTS: dict[str, Proximal] = {"proximal": Proximal(), "alternate": Alternate()}


@dataclass(frozen=True)
class Spider(DifferenceMethod):
    """Algorithms 3 and 11.

    variant: proximal (Algorithm 3) or alternate (Algorithm 11).
    phase: q, rounds from one new gradient to the next, for variant=proximal.
    anchor_batch_size: K1, batch size of gradients; None: the paper's floor(n sqrt(24) / 2 * min(1,
        sqrt(phase / rounds))), at most n, or K2 with variant=alternate.
    batch_size: K2, batch size of differences; None: the paper's floor(n sqrt(24) / (2
        sqrt(rounds))).
    """

    variant: str
    phase: int
    anchor_batch_size: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, variant=VARIANTS)
        require_positive("algo", self, "phase")
        require_counts(self, "anchor_batch_size")
        names = self._variant.operators
        allowed = f"{', '.join(names)} with variant={self.variant}"
        require(self.prox in names, "algo.prox", self.prox, allowed)

    @property
    def _variant(self) -> Proximal:
        return VARIANTS[self.variant]

    @property
    def label(self) -> str:
        return f"SPIDER {self.variant}"

    @property
    def claims(self) -> type[SmallEpsilonClaim] | None:
        return self._variant.claims()

    def query_names(self, round: int) -> tuple[str, ...]:
        return self._variant.query_names(self, round)

    def size(self, name: str, records: int) -> int:
        if name == DIFFERENCE:
            return super().size(name, records)
        return min(records, self.anchor_batch_size or self._variant.anchor_size(self, records))

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        return {**super().idle_keys(plan), **self._variant.idle_keys(self)}

    def counted(self, name: str) -> float:
        return self._variant.counted(self, name)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        state = super().init(params, plan)
        return state.with_params(params, estimate=np.zeros_like(params), previous=params)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        if query.name == GRADIENT:
            return {"params": state.params}
        new, old = self._variant.points(self, state)
        return {"params": new, "previous": old}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return self._variant.update(self, state, query, total.vector / len(total.silos), plan)
