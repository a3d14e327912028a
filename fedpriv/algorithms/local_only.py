"""Training without any exchange: every silo goes on with a model of its own, the yardstick of what
joining is worth.

Local-Only in B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized
aggregation for federated learning (SecureD-FL), section VI. Symbols: E -> local_epochs, eta ->
local_lr, w_k -> Silo.state["params"], which begins as weights of the silo's own, those that
`secured_fl` would average. Messages are empty, and nobody learns a model: what a run leaves as its
model are weights that nobody has trained. What is evaluated is every silo's model, and where it is
known which silo a test record belongs to, on the silo's own test records (`Evaluation`).

Privacy: none is claimed; what protects the records is that nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import LocalUpdate
from fedpriv.algorithms.fedavg import FedAvg, remembering
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.parties.party import silo_name
from fedpriv.rounds.local_job import Silo
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.state import State
from fedpriv.training.description import Block, Training

if TYPE_CHECKING:
    from torch import Tensor

PARAMS = "params"


@dataclass(frozen=True)
class LocalOnly(FedAvg):
    """FedAvg without the averaging. global_lr is not used."""

    @property
    def label(self) -> str:
        return "Local-only"

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(NoNoise(), size=0, stateful=True),)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        start = silo.state[PARAMS] if PARAMS in silo.state else own_weights(silo)
        pending: PendingState = {}

        def vectors(block: Block) -> Tensor:
            if bool(block.deltas.isfinite().all()):
                pending[PARAMS] = start + block.deltas[0].double().cpu().numpy()
            return block.deltas[:, :0]

        local = LocalUpdate(
            Training(self.recipe(silo, query), start, pooled=True), vectors, pending=pending
        )
        return remembering(local, silo, pending) if self.keep_optimizer else local

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        return {**silo.state, **pending}

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        if not silo_states:
            return self.output(state)
        names = map(silo_name, range(len(silo_states)))
        return np.stack([silo_states[name].get(PARAMS, state.params) for name in names])


def own_weights(silo: Silo) -> np.ndarray:
    """Initial weights (d,) that the silo draws by itself."""
    from fedpriv.training.initial import drawn_weights

    return (
        drawn_weights(silo.model, silo.streams.torch_seed("initial weights", party=silo.name))
        .double()
        .numpy()
    )
