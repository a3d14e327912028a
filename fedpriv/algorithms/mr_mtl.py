"""MR-MTL: each silo trains its own model by DP-SGD, and is pulled to the mean of all silos' models.

Liu, Hu, Wu, Smith: On privacy and personalization in cross-silo federated learning, NeurIPS 2022
(arXiv 2206.07902), mean-regularised multi-task learning. Symbols: w_k -> Silo.state["params"],
mean of the w_k -> State.params, lambda -> proximal, epsilon_k -> epsilons[k], C -> clip, eta ->
local_lr.

Silo k continues from its own w_k by noisy steps on its loss + lambda/2 |w - mean|^2, and sends the
new w_k; the server averages those in the sum. lambda = 0 is local training, and with a large lambda
silos hardly differ. The authors' program clips a record's gradient together with that of the
regulariser. Here it is clipped alone: the regulariser depends on no record beyond models that are
noised already.

Privacy: unit record, adjacency add/remove, for each silo its own epsilon (silo-specific
record-level DP). A record is in one silo, so silos are scopes. Every step of a silo is noised, so
w_k tells no more than its steps: the silo may keep it, send it and be evaluated by it. The
certificate of a silo counts its own noise alone, and holds for every observer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedpriv.algorithms.budgets import Spending, needed_noise
from fedpriv.algorithms.local_only import PARAMS, models_of
from fedpriv.algorithms.uldp_group import ALL, UldpGroup
from fedpriv.certificates.noise import DpSgdNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import ContributionStats


@dataclass(frozen=True)
class MrMtl(UldpGroup):
    """DP-SGD in every silo on a model of its own, with a pull to their mean.

    noise_multiplier: sigma, noise relative to clip in every step; with epsilons it follows from
        them.
    proximal: lambda, weight of the pull; 0: local training.
    epsilons: of a record of each silo, after `rounds` rounds; None: all silos have one noise.
    rounds: number of rounds that epsilons are for.
    delta: delta of epsilons.
    """

    proximal: float
    epsilons: list[float] | None
    rounds: int
    delta: float
    global_lr: float = field(default=1.0, init=False)
    group_size: str = field(default=ALL, init=False)

    keeps_released: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        most = 1 / self.local_lr
        allowed = f"0 to {most:g}, 1 / local_lr: a step would go beyond the mean"
        require(0 <= self.proximal <= most, "algo.proximal", self.proximal, allowed)
        for epsilon in self.epsilons or ():
            require(0 < epsilon < math.inf, "algo.epsilons", epsilon, "positive numbers")
        require(0 < self.delta < 1, "algo.delta", self.delta, "a number between 0 and 1")

    @property
    def label(self) -> str:
        return f"MR-MTL lambda={self.proximal:g}"

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        if self.epsilons is not None:
            return {"noise_multiplier": "algo.epsilons, which it follows from"}
        return dict.fromkeys(("rounds", "delta"), "algo.epsilons=null")

    def check(self, plan: Plan) -> None:
        single = plan.federation.records_per_draw == 1
        allowed = "another for this data set, whose loss compares records"
        require(single, "algo", "mr_mtl", allowed)
        super().check(plan)
        if self.epsilons is not None:
            silos, given = plan.federation.n_silos, len(self.epsilons)
            allowed = f"{silos} numbers, one a silo, or null"
            require(given == silos, "algo.epsilons", f"{given} numbers", allowed)
            allowed = "null: this mechanism adds no noise"
            require(plan.mechanism.clips, "algo.epsilons", self.epsilons, allowed)

    def needed(self, federation: Federation) -> tuple[float, ...]:
        """The noise multiplier of each silo, 0 for one without records; empty without epsilons."""
        found = []
        for epsilon, records in zip(self.epsilons or (), federation.silo_records):
            steps, rate = self.steps(records)
            spending = Spending(self.rounds * steps, self.delta, rate)
            found.append(needed_noise(epsilon, spending) if steps else 0.0)
        return tuple(found)

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        needed = [noise for noise in self.needed(draft.federation) if noise]
        if not needed:
            return super().calibrated(draft)
        return {UPDATE: draft.mechanism.with_noise(min(needed))}

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(self._noise(plan), stateful=True),)

    def _noise(self, plan: Plan) -> DpSgdNoise:
        needed = self.needed(plan.federation)
        least = min((noise for noise in needed if noise), default=1.0)
        return DpSgdNoise(self.steps, tuple(noise / least or 1.0 for noise in needed))

    # -- a round -----------------------------------------------------------------------------------

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        stats = ContributionStats()
        pending: PendingState = {}
        steps = self._personal(silo, query, down["params"], pending, stats)
        return LocalJob(steps, noise=np.zeros(query.size), pending=pending, stats=stats)

    def _personal(
        self,
        silo: Silo,
        query: Query,
        mean: np.ndarray,
        pending: PendingState,
        stats: ContributionStats,
    ) -> Computation:
        own = silo.state.get(PARAMS, mean)
        noise = self._noise(silo.plan).of_silo(silo.index)
        change = yield from self.noisy_change(
            silo, query, own, stats, noise=noise, proximal=self.proximal, anchor=mean
        )
        model = own if change is None else own + change
        pending[PARAMS] = model
        yield silo.contribution(model)

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        return {**silo.state, **pending}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(total.vector / len(total.silos))

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        return models_of(silo_states, state.params) if silo_states else self.output(state)
