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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import require_counts, require_one_of
from fedpriv.algorithms.gradient_queries import DIFFERENCE, GRADIENT
from fedpriv.algorithms.sampled_method import DifferenceMethod
from fedpriv.certificates.sampling import paper_batch
from fedpriv.errors import require, require_positive
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

if TYPE_CHECKING:
    from fedpriv.accountants.zcdp import SmallEpsilonClaim


VARIANTS = ("proximal", "alternate")


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
        fits = self.prox == "none" or not self._alternate
        require(fits, "algo.prox", self.prox, f"none with variant={self.variant}")

    @property
    def _alternate(self) -> bool:
        return self.variant == "alternate"

    @property
    def label(self) -> str:
        return f"SPIDER {self.variant}"

    @property
    def claims(self) -> type[SmallEpsilonClaim] | None:
        from fedpriv.accountants.zcdp import MomentsClaim

        return MomentsClaim if self._alternate else super().claims

    def query_names(self, round: int) -> tuple[str, ...]:
        if self._alternate:
            return GRADIENT, DIFFERENCE
        return (GRADIENT,) if (round - 1) % self.phase == 0 else (DIFFERENCE,)

    def size(self, name: str, records: int) -> int:
        if name == GRADIENT and self.anchor_batch_size is not None:
            return min(records, self.anchor_batch_size)
        if name == DIFFERENCE or self._alternate:
            return super().size(name, records)
        return paper_batch(records, self.rounds, math.sqrt(min(self.rounds, self.phase)))

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        idle = dict(super().idle_keys(plan))
        if self._alternate:
            return idle | {"phase": f"algo.variant={self.variant}"}
        # With one round a phase every round renews the estimate, so there are no differences.
        names = ("batch_size", "difference_noise", "gradient_share") if self.phase == 1 else ()
        return idle | dict.fromkeys(names, f"algo.phase={self.phase}")

    def counted(self, name: str) -> float:
        if name == DIFFERENCE or self._alternate:
            return super().counted(name)
        return max(self.rounds / self.phase, 1.0)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        state = super().init(params, plan)
        return state.with_params(params, estimate=np.zeros_like(params), previous=params)

    def _points(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """The new and the old point of a gradient difference."""
        if self._alternate:
            return state.params - self.global_lr * state.slots["estimate"], state.params
        return state.params, state.slots["previous"]

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        if query.name == GRADIENT:
            return {"params": state.params}
        new, old = self._points(state)
        return {"params": new, "previous": old}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        mean = total.vector / len(total.silos)
        stepped = partial(self.stepped, state, round=query.round, seen=query.round, plan=plan)
        if not self._alternate:
            estimate = mean if query.name == GRADIENT else state.slots["estimate"] + mean
            return stepped(estimate, estimate=estimate, previous=state.params)
        if query.name == GRADIENT:
            return state.with_params(state.params, estimate=mean)
        both = 2 * state.slots["estimate"] + mean  # w' = w - eta g, then along g + d
        return stepped(both, previous=self._points(state)[0])
