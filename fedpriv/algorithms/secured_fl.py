"""SecureD-FL: federated averaging among peers that start from the average of their own initial
weights.

B. Jeon, S. M. Ferdous, M. R. Rahman, A. Walid, Privacy-preserving decentralized aggregation for
federated learning, Algorithm 3; designed for aggregation=admm. Symbols: E -> local_epochs, eta ->
local_lr, n -> Federation.n_silos, w^0 -> the average of the peers' initial weights with
init_weights=own. Peers average the changes of their models. With global_lr = 1 this equals
averaging the models.

Privacy: none, whatever the aggregation hides. algo=uldp_naive clips and noises each peer's message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import require_one_of
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.algorithms.local_only import own_weights
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import UPDATE, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

if TYPE_CHECKING:
    from torch import nn

    from fedpriv.data.base import DataSet
    from fedpriv.mechanisms.base import Mechanism

INITIAL = "initial"
"""The query for the average of initial weights, before the first update."""


@dataclass(frozen=True)
class SecuredFl(FedAvg):
    """Federated averaging among peers.

    init_weights: own: each peer draws its own initial weights, and the first query averages them;
        shared: all peers start from the same weights, drawn from the public seed.
    """

    init_weights: str = "own"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, init_weights=("shared", "own"))

    label = "SecureD-FL"

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        from fedpriv.training.initial import undrawable

        super().check_network(network, data)
        layer = undrawable(network)
        drawn = self.init_weights == "shared" or layer is None
        allowed = f"shared, because {type(layer).__name__} has no reset_parameters"
        require(drawn, "algo.init_weights", self.init_weights, allowed)

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        return {INITIAL: mechanism, UPDATE: mechanism}

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        update = super().requests(round, plan)
        if round > 1 or self.init_weights == "shared":
            return update
        return Request(NoNoise(), name=INITIAL), *update

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        if query.name != INITIAL:
            return super().local_update(silo, query, down)
        import torch

        drawn = torch.from_numpy(own_weights(silo)).unsqueeze(0)
        return LocalJob(iter([Contributions(np.array([silo.index]), drawn)]))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        if query.name != INITIAL:
            return super().global_update(state, query, total, plan)
        return state.with_params(total.vector / len(total.silos))
