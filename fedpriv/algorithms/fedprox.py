"""FedProx: federated averaging with a proximal term that pulls local steps towards the global
model.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated optimization in heterogeneous networks, MLSys
2020, Algorithm 2. Symbols: mu -> proximal, w^t -> the parameters that silos start from, p_k ->
equal weights, E -> local_epochs. A silo minimises its loss plus mu/2 |w - w^t|^2 inexactly, by
local_epochs passes of the local optimiser.

Privacy: none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.errors import require
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo
from fedpriv.training.description import Recipe


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term.

    proximal: mu, weight of the term; 0 gives FedAvg.
    """

    proximal: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            0 <= self.proximal < math.inf,
            "algo.proximal",
            self.proximal,
            "zero or a positive number",
        )

    @property
    def label(self) -> str:
        return f"FedProx mu={self.proximal:g}"

    def recipe(self, silo: Silo, query: Query) -> Recipe:
        return replace(super().recipe(silo, query), proximal=self.proximal)
