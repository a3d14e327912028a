"""Algorithms: what is asked in a round, what a silo computes for it, and what is done with the
total.

A round is a tuple of queries, mostly one. For each: `broadcast` at whoever holds the state,
`local_update` at each invited silo, the aggregation's exchange, and `global_update` at every party
that learned the total.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import numpy as np

from fedpriv.accountants.events import RELEASED_MODEL
from fedpriv.algorithms.proximal import Regulariser
from fedpriv.certificates.derive import planned
from fedpriv.certificates.request import ObservedRelease, Request, Target
from fedpriv.errors import require
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.local_job import Silo
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import (
    Contributions,
    PendingState,
    Query,
    SiloState,
    Total,
)
from fedpriv.rounds.state import State
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.training.description import Block, Training
from fedpriv.util.work import DeferredWork

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import Tensor

    from fedpriv.data.allocation import Allocation
    from fedpriv.data.base import DataSet
    from fedpriv.mechanisms.base import Mechanism


def raw_deltas(block: Block) -> Tensor:
    """The changes of the parameters themselves, (k, d)."""
    return block.deltas


@dataclass(frozen=True)
class LocalUpdate:
    """What a silo contributes to a query, before the framework bounds and noises it.

    training: described local training, whose blocks `vectors` turns into contributions (k, size).
    blocks: contributions that the algorithm computes itself; one of the two.
    ahead: work whose result they ask for.
    noise: the noise share (size,) float64 of an algorithm that draws it itself (`Query.enforced` is
        False); None: the framework draws it, or there is none.
    pending: filled while the blocks stream by, with what the silo will remember if the query ends
        with a sum. With it a silo whose message nobody asks for trains all the same; None: nothing
        changes. tally: of the contributions that the algorithm computes itself.
    """

    training: Training | None = None
    vectors: Callable[[Block], Tensor] = raw_deltas
    blocks: Iterator[Contributions] | None = None
    ahead: DeferredWork[Any] | None = None
    noise: np.ndarray | None = None
    pending: PendingState | None = None
    stats: ContributionStats = field(default_factory=ContributionStats)


@dataclass(frozen=True)
class Algorithm(ABC):
    """A federated algorithm by its configuration. What changes from round to round is in `State`
    and silo states."""

    # -- before the first round --------------------------------------------------------------------

    @property
    @abstractmethod
    def label(self) -> str:
        """The method's name in its paper's figures."""

    @property
    @abstractmethod
    def contributors(self) -> Contributors:
        """Whose vectors are bounded and summed: users, silos or records."""

    @abstractmethod
    def targets(self, federation: Federation) -> tuple[Target, ...]:
        """Whose data the certificates protect."""

    def check(self, plan: Plan) -> None:  # noqa: B027
        """Raise ConfigError for combinations that cannot work. Called before data are loaded, when
        `silo_records` is empty and noise may not be calibrated yet, and again when everything is
        known."""

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        """The allocation with the records that this algorithm trains on;
        `Allocation.records_per_user` says so if it bounds them. Raises ConfigError for data that it
        cannot train on."""
        return allocation

    def n_invited(self, federation: Federation) -> int:
        """How many silos are invited to a query."""
        return federation.n_silos

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        """The mechanism of each kind of query, by the query's name."""
        return {UPDATE: mechanism}

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        """The mechanisms with their noise a number.

        draft: the plan with the mechanisms as configured.
        """
        return {name: parameters.mechanism for name, parameters in draft.query_parameters.items()}

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        """A size that no coordinate of a silo's message to query `name` exceeds, from public
        numbers alone; inf when there is none.

        n_summed: how many silos the sum covers.
        """
        most = self.contributors.most_in_message(federation)
        return most * mechanism.clip + mechanism.noise_bound(n_summed) if most < math.inf else most

    @property
    def queries_need_allocation(self) -> bool:
        """Whether queries, and so epsilons, need to know how many records each silo trains on."""
        return False

    @property
    def rounds_alike(self) -> bool:
        """Whether every round's queries have the same events, so that one round tells what all of
        them cost."""
        return True

    @property
    def headline_observer(self) -> str:
        """Whose epsilon a run is known by, and bounded by its budget; another than `RELEASED_MODEL`
        where the messages themselves are what is protected."""
        return RELEASED_MODEL

    def init(self, params: np.ndarray, plan: Plan) -> State:
        """The state before the first round, from the model's initial parameters (d,)."""
        return State(params)

    # -- a round -----------------------------------------------------------------------------------

    @abstractmethod
    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        """What is asked of the silos in this round; looks at no data."""

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        """What the method's paper says that a view costs; None where it says nothing."""
        return None

    @final
    def queries(self, round: int, plan: Plan) -> tuple[Query, ...]:
        """The round's queries with what each observer will learn; looks at no data.

        The framework samples users and derives the events: a method can do neither.
        """
        targets = self.targets(plan.federation)
        requests = self.requests(round, plan)
        return planned(
            requests,
            plan,
            self.contributors,
            targets,
            round=round,
            claim=self.claim,
            drawing=self,
        )

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.queries is not Algorithm.queries:  # its own, or that of a class beside this one
            raise TypeError(
                f"{cls.__name__}.queries: the framework derives events; declare `requests` instead"
            )

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        """What silos need for the query, by name."""
        return {"params": state.params}

    @abstractmethod
    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        """One silo's contributions, from what was sent down.

        query: as silos are told (`Query.silo_query`); but `sampled` is set where the broadcast says
            who is sampled.
        """

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        """What the silo remembers after a query with a sum.

        summed: whether the silo is in it. A query without a sum changes nothing.
        """
        return pending

    @abstractmethod
    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        """The state after a query with a sum; the only place that divides."""

    # -- what is measured, on demand and outside of every epsilon ----------------------------------

    @property
    def regulariser(self) -> Regulariser | None:
        """f1, what the method minimises besides the training loss f0; None for nothing."""
        return None

    # -- the result --------------------------------------------------------------------------------

    def output(self, state: State) -> np.ndarray:
        """The parameters (d,) that are released at the end."""
        return state.params

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        """What is evaluated: one model (d,), or one a silo (n_silos, d) in their order.

        silo_states: by the silo's name as a party, after the last query that was stateful.
        """
        return self.output(state)


CALIBRATIONS = ("given", "paper", "certified")
"""How a method may choose its noise: a person's, its paper's formula's, or its certificate's for a
target."""


def require_target(calibration: str, epsilon: float) -> None:
    """Raise ConfigError for a calibration or a target that no method has."""
    require(calibration in CALIBRATIONS, "algo.calibration", calibration, ", ".join(CALIBRATIONS))
    require(0 < epsilon < math.inf, "algo.epsilon", epsilon, "a positive number")


def require_cohort(cohort: int | None) -> None:
    """Raise ConfigError for a number of silos that no round could have."""
    require(
        cohort is None or cohort >= 1,
        "algo.cohort",
        cohort,
        "a positive number of silos, or null for all",
    )


def require_plain_sgd(plan: Plan) -> None:
    """Raise ConfigError for another local optimiser: the method's steps are its own."""
    optimizer = plan.optimizer
    require(
        optimizer.plain,
        "optimizer",
        type(optimizer).__name__.lower(),
        "sgd without momentum and weight decay",
    )
