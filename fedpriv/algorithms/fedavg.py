"""Federated averaging with two-sided learning rates: the non-private reference (DEFAULT in the Uldp-FL paper).

Yang, Fang, Liu: Achieving linear speedup with partial worker participation in non-IID federated learning, ICLR 2021.
Symbols: eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B -> batch_size, S -> Federation.n_silos.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, OBSERVERS, Event
from fedpriv.aggregation.base import Aggregation, Total
from fedpriv.algorithms.base import Federation, Local, Plan, Tally, Update
from fedpriv.algorithms.local_training import trained
from fedpriv.algorithms.silo_unit import SiloAlgorithm
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.streams import Streams


@dataclass(frozen=True)
class FedAvg(SiloAlgorithm):
    """Each silo trains on all of its records; the server averages the changes with equal weights.

    Privacy: none. The unit that contributes is the silo.
    """

    local_epochs: int
    batch_size: int
    local_lr: float
    global_lr: float

    def __post_init__(self) -> None:
        require(self.local_epochs >= 1, "algo.local_epochs", self.local_epochs, "a positive integer")
        require(self.batch_size >= 1, "algo.batch_size", self.batch_size, "a positive integer")
        require(0 < self.local_lr < np.inf, "algo.local_lr", self.local_lr, "a positive number")
        require(0 < self.global_lr < np.inf, "algo.global_lr", self.global_lr, "a positive number")

    @property
    def label(self) -> str:
        return "DEFAULT"

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        require(not mechanism.clips, "mechanism", type(mechanism).__name__.lower(), "none: algo=fedavg is not private")

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        seen = tuple(
            Event(observer, "user", ADD_REMOVE, mechanism.event(), None, assumptions=("no noise is added",))
            for observer in OBSERVERS
        )
        covered, code = self.agree(federation, mechanism, aggregation)
        return Plan(round, tuple(range(federation.n_silos)), None, seen, covered, code, streams)

    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        from fedpriv.training import LocalSgd

        tally = Tally()
        recipe = LocalSgd(self.local_epochs, self.batch_size, self.local_lr)
        blocks = trained(local, local.data.pooled(), None, np.array([local.silo]), theta, recipe, plan.round, tally)
        return Update(blocks, self.noise(local, plan, len(theta)), tally)

    def noise(self, local: Local, plan: Plan, size: int) -> np.ndarray:
        """The silo's share of the noise, (size,) float64."""
        return np.zeros(size)

    def global_update(self, theta: np.ndarray, total: Total, federation: Federation) -> np.ndarray:
        return theta + self.global_lr / len(total.parties) * total.vector
