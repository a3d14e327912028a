"""Local-only training: each silo trains its own model, and silos exchange nothing. A non-private
baseline that shows what joining a federation is worth.

Local-Only in B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized
aggregation for federated learning (SecureD-FL), section VI. Symbols: E -> local_epochs, eta ->
local_lr, w_k -> Silo.state["params"].

Each silo draws its own initial weights, those that `secured_fl` would average. Messages are empty,
and no party learns a model of another. The released model of a run is therefore untrained. The
evaluation is over the silos' models: if the silo of each test record is known, each model is
evaluated on its own silo's test records (`Evaluation`).

Privacy: no claim. Records stay private because silos send nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.parties.party import silo_name
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.base import DataSet

PARAMS = "params"


@dataclass(frozen=True)
class LocalOnly(FedAvg):
    """FedAvg without averaging. `global_lr` has no effect."""

    label = "Local-only"

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        return {"global_lr": "algo=local_only, which has no average"}

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        from fedpriv.training.initial import undrawable

        super().check_network(network, data)
        layer = undrawable(network)
        allowed = "layers with reset_parameters, because each silo draws its own initial weights"
        require(layer is None, "model", type(layer).__name__, allowed)

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(NoNoise(), size=0, stateful=True),)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        start = silo.state[PARAMS] if PARAMS in silo.state else own_weights(silo)
        pending: PendingState = {}
        job = self.train(silo, query, start, pending=pending)

        def store_params(block: Contributions) -> Contributions:
            if bool(block.vectors.isfinite().all()):
                pending[PARAMS] = start + block.vectors[0].double().cpu().numpy()
            else:
                job.stats.nonfinite += 1
            return replace(block, vectors=block.vectors[:, :0])

        return job.map(store_params)

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        return {**silo.state, **pending}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        return models_of(silo_states, state.params) if silo_states else self.output(state)


def models_of(silo_states: Mapping[str, SiloState], start: np.ndarray) -> np.ndarray:
    """The models that silos keep, (n_silos, d); `start` for one that has none."""
    names = map(silo_name, range(len(silo_states)))
    return np.stack([silo_states[name].get(PARAMS, start) for name in names])


def own_weights(silo: Silo) -> np.ndarray:
    """Initial weights (d,) from the silo's own random stream."""
    from fedpriv.training.initial import drawn_weights

    return (
        drawn_weights(silo.model, silo.streams.torch_seed("initial weights", party=silo.name))
        .double()
        .numpy()
    )
