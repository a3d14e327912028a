"""SCAFFOLD: federated averaging whose local steps are corrected for the drift of each silo.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic controlled averaging for
federated learning, ICML 2020, Algorithm 1 with option II. Symbols: x -> State.params, c -> slot
"control", c_i -> Silo.state["control"], K -> local steps of a silo, eta_l -> local_lr, eta_g ->
global_lr, N -> Federation.n_silos, S -> the silos in the sum.

A silo steps along g - c_i + c, and then sets c_i+ = c_i - c + (x - y_i) / (K eta_l). Its message
(2d,) is the change of its model and of its control variate. A silo that is not in the sum keeps its
old control variate.

Privacy: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Federated averaging of plain local SGD with control variates."""

    label = "SCAFFOLD"

    def check(self, plan: Plan) -> None:
        super().check(plan)
        plan.optimizer.require_plain()

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(params, {"control": np.zeros_like(params)})

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        size = 2 * plan.federation.n_parameters
        return (Request(NoNoise(), size=size, stateful=True),)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {"params": state.params, "control": state.slots["control"]}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        control = down["control"]
        own = silo.state.get("control", np.zeros_like(control))
        steps = self.recipe(silo, query).epochs * -(-len(silo.data.x) // self.batch_size)  # K
        distance = steps * self.local_lr
        pending: PendingState = {}

        def with_drift(block: Contributions) -> Contributions:
            import torch

            change = block.vectors.double()
            drift = -torch.tensor(control, device=change.device) - change / distance
            if bool(drift.isfinite().all()):
                pending["control"] = own + drift[0].cpu().numpy()
            return replace(block, vectors=torch.cat([change, drift], dim=1))

        job = self.train(silo, query, down["params"], pending=pending, correction=control - own)
        return job.map(with_drift)

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        return pending if summed and pending else silo.state

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        change, drift = np.split(total.vector, 2)
        params = state.params + self.global_lr / len(total.silos) * change
        return state.with_params(
            params, control=state.slots["control"] + drift / plan.federation.n_silos
        )
