"""Federated averaging with two-sided learning rates: the non-private baseline (DEFAULT in the
Uldp-FL paper).

Yang, Fang, Liu: Achieving linear speedup with partial worker participation in non-IID federated
learning, ICLR 2021. Symbols: eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B ->
batch_size, S -> Federation.n_silos.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import NoNoise
from fedpriv.certificates.request import Request
from fedpriv.errors import require, require_positive
from fedpriv.rounds.contributors import Silos
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions
from fedpriv.training.description import Recipe, Training

OPTIMIZER = "optimizer/"
"""Prefix of the optimiser's slots in a silo's state."""


@dataclass(frozen=True)
class WholeSilo(Algorithm):
    """Each silo trains on all of its records, and the server steps along the mean of the changes.

    local_epochs: passes of a silo over its records in a round.
    batch_size: records of a local batch.
    local_lr: learning rate of the silos.
    global_lr: learning rate of the server.
    """

    local_epochs: int
    batch_size: int
    local_lr: float
    global_lr: float

    def __post_init__(self) -> None:
        require_positive("algo", self, "local_epochs", "batch_size", "local_lr", "global_lr")

    contributors = Silos(pooled=True)

    def recipe(self, silo: Silo, query: Query) -> Recipe:
        """The recipe of a silo's local training."""
        return Recipe(
            self.local_epochs + query.exchange.repeats,
            self.batch_size,
            self.local_lr,
            silo.plan.optimizer,
        )

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return silo.train(query, Training(self.recipe(silo, query), down["params"], pooled=True))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(state.params + self.global_lr / len(total.silos) * total.vector)


@dataclass(frozen=True)
class FedAvg(WholeSilo):
    """The changes are averaged with equal weights.

    keep_optimizer: whether a silo's optimiser keeps its slots between rounds; False: it starts each
        round without them.

    Privacy: none. The contributor is the silo.
    """

    keep_optimizer: bool = field(default=False, kw_only=True)

    def check(self, plan: Plan) -> None:
        allowed = f"none: {type(self).__name__} is not private"
        for parameters in plan.query_parameters.values():
            mechanism = parameters.mechanism
            require(not mechanism.clips, "mechanism", type(mechanism).__name__.lower(), allowed)
        has_memory = not self.keep_optimizer or bool(plan.optimizer.slots)
        require(
            has_memory,
            "algo.keep_optimizer",
            self.keep_optimizer,
            "false with an optimiser without slots",
        )

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(NoNoise(), stateful=self.keep_optimizer),)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return self.train(silo, query, down["params"])

    def train(
        self,
        silo: Silo,
        query: Query,
        start: np.ndarray,
        *,
        pending: PendingState | None = None,
        correction: np.ndarray | None = None,
    ) -> LocalJob:
        """The job of training on all of the silo's records; if `keep_optimizer`, with an optimiser
        that continues from the slots in the silo's state. Finite final slots become part of its
        next state.

        pending: see `LocalJob`.
        correction: see `Training`.
        """
        training = Training(self.recipe(silo, query), start, pooled=True, correction=correction)
        if not self.keep_optimizer:
            return silo.train(query, training, pending=pending)
        slots = {
            name.removeprefix(OPTIMIZER): value
            for name, value in silo.state.items()
            if name.startswith(OPTIMIZER)
        }
        stored: PendingState = {} if pending is None else pending

        def store_slots(block: Contributions) -> Contributions:
            if all(bool(slot.isfinite().all()) for slot in block.memory.values()):
                stored.update(
                    {OPTIMIZER + name: slot[0].cpu().numpy() for name, slot in block.memory.items()}
                )
            return block

        job = silo.train(query, replace(training, memory=slots), pending=stored)
        return job.map(store_slots)

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        return {**silo.state, **pending} if summed else silo.state
