"""The base of algorithms: the queries of a round, the local update of a silo, and the global
update.

A round is a tuple of queries, usually one. For each query, the framework calls:

1. `broadcast` at the party that holds the state;
2. `local_update` at each invited silo;
3. the aggregation's exchange;
4. `global_update` at every party that learned the total.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, final

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL
from fedpriv.algorithms.proximal import Regulariser
from fedpriv.certificates.derive import plan_queries
from fedpriv.certificates.request import ObservedRelease, Request, Target
from fedpriv.errors import require
from fedpriv.rounds.adapting import adapted, bound_of, with_bounds
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.mixing import estimated, with_estimates
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import nn

    from fedpriv.accountants.base import Accountant
    from fedpriv.data.allocate import Allocation
    from fedpriv.data.base import DataSet
    from fedpriv.mechanisms.base import Mechanism
    from fedpriv.models import Model


@dataclass(frozen=True)
class Algorithm(ABC):
    """A federated algorithm and its configuration. What changes from round to round is in `State`
    and in silo states.

    A method declares its contributors and queries. The framework clips, adds the noise and derives
    the certificate:

    >>> from fedpriv.certificates.noise import SumNoise
    >>> from fedpriv.rounds.contributors import Users
    >>> from fedpriv.training.description import Recipe
    >>> @dataclass(frozen=True)
    ... class UserAverage(Algorithm):
    ...     lr: float
    ...
    ...     contributors = Users()
    ...
    ...     def requests(self, round, plan):
    ...         return (Request(SumNoise(), recipe=Recipe(1, None, self.lr)),)
    ...
    ...     def global_update(self, state, query, total, plan):
    ...         return state.with_params(state.params + total.vector / plan.federation.n_users)
    >>> UserAverage(lr=0.1).label
    'UserAverage'
    """

    # -- before the first round --------------------------------------------------------------------

    @property
    def label(self) -> str:
        """The method's name, as in the figures of its paper. By default that of the class."""
        return type(self).__name__

    @property
    @abstractmethod
    def contributors(self) -> Contributors:
        """The units whose vectors are bounded and summed: users, silos or records."""

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        """The units that the certificates protect. By default all records of one user."""
        return (Target("user", ADD_REMOVE),)

    def check(self, plan: Plan) -> None:  # noqa: B027
        """Raise ConfigError for settings that do not fit together.

        The framework calls it twice: before data are loaded, when `silo_records` is empty and the
        noise may not be calibrated, and once the plan is complete.
        """

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        """Raise ConfigError for a network that this algorithm cannot train. The framework calls it
        before data are loaded.

        data: not loaded; its shapes are known.
        """
        from fedpriv.training.network_checks import check_local_training

        check_local_training(network, pooled=self.contributors.pooled)

    def data_of(self, data: DataSet) -> DataSet:
        """The data set whose training records contribute. By default the configured one."""
        return data

    def model_of(self, model: Model) -> Model:
        """The model whose parameters the state has. By default the configured one."""
        return model

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        """The arguments that have no effect under these settings: name: the setting that makes it
        so, such as "algo.calibration=certified". A command line that sets one is refused.

        plan: before data are loaded, as in `check`.
        """
        return {}

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        """The allocation restricted to the records that this algorithm trains on. An algorithm that
        bounds the records of a user sets `Allocation.records_per_user`. Raises ConfigError for data
        that it cannot train on."""
        return allocation

    def n_invited(self, federation: Federation) -> int:
        """The number of silos that are invited to a query."""
        return federation.n_silos

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        """The mechanism of each query, by the query's name."""
        return {UPDATE: mechanism}

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        """The mechanisms with calibrated noise, by the query's name.

        draft: the plan with the mechanisms as configured.
        """
        return {name: parameters.mechanism for name, parameters in draft.query_parameters.items()}

    @property
    def own_target(self) -> tuple[Accountant, int] | None:
        """An accountant with a target, and the rounds that cost it: the framework then scales the
        noise of `calibrated`. None: that is the method's noise."""
        return None

    idle_with_target: ClassVar[tuple[str, ...]] = ("noise_multiplier",)
    """Arguments without effect when the noise is solved for `accountant.target`."""

    def for_target(self, epsilon: float) -> Self:
        """The method as it is run when its noise is solved for a certified epsilon: the framework
        scales the noise of `calibrated`. Raises ConfigError for settings that contradict it."""
        return self

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        """A bound on the absolute value of each coordinate of a silo's message to query `name`,
        from public numbers alone; inf without a bound.

        n_summed: number of silos in the sum.
        """
        most = self.contributors.most_in_message(federation)
        return most * mechanism.clip + mechanism.noise_bound(n_summed) if most < math.inf else most

    @property
    def rounds_alike(self) -> bool:
        """Whether the queries of every round have the same events. The events of one round then
        give the cost of all rounds."""
        return True

    def last_round(self, federation: Federation) -> int | None:
        """The last round for which every silo has records; None: there are always some. A run ends
        there."""
        return None

    @property
    def headline_observer(self) -> str:
        """The observer whose epsilon a run reports first and its budget bounds. It is not
        `RELEASED_MODEL` if the method protects the messages themselves."""
        return RELEASED_MODEL

    @final
    def first_state(self, params: np.ndarray, plan: Plan) -> State:
        """The state before the first round, with what the framework keeps in it."""
        return with_bounds(with_estimates(self.init(params, plan), plan), plan)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        """The state before the first round, from the model's initial parameters (d,)."""
        return State(params)

    # -- a round -----------------------------------------------------------------------------------

    @abstractmethod
    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        """The queries of this round, as the method asks for them. Depends on no data."""

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        """The event that the method's paper claims for an observed release; None: no claim."""
        return None

    @final
    def queries(self, round: int, plan: Plan, *, charged: bool = True) -> tuple[Query, ...]:
        """The queries of a round, with the events of each observer. Depends on no data.

        The framework samples users and derives the events; a method cannot override this.

        charged: False leaves out events and samples, as a silo sees a query.
        """
        targets = self.targets(plan.federation)
        requests = self.requests(round, plan)
        return plan_queries(
            requests,
            plan,
            self.contributors,
            targets,
            round=round,
            claim=self.claim,
            author=self,
            trains=type(self).local_update is not Algorithm.local_update,
            charged=charged,
        )

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if cls.queries is not Algorithm.queries:  # its own, or that of a class beside this one
            raise TypeError(
                f"{cls.__name__}.queries: the framework derives events; declare `requests` instead"
            )

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        """The vectors that silos need for the query, by name."""
        return {"params": state.params}

    @final
    def sent(self, state: State, query: Query) -> dict[str, np.ndarray]:
        """All vectors of the broadcast, by name: those of `broadcast` and the round's bound, if it
        adapts."""
        return {**self.broadcast(state, query), **bound_of(state, query)}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        """One silo's contributions, before the framework bounds and noises them. By default each
        user trains by the recipe of the request.

        A method of its own returns `Silo.train`, or any other job. It sees all records of the
        silo, so its certificate for users or records is declared.

        query: as the silo computes it; `sampled` is set if the broadcast contains the sample.
        down: vectors of the broadcast, by name; read-only, since silos share them.
        """
        return silo.train_users(query, down["params"])

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        """The silo's state after a query with a sum. A query without a sum changes nothing.

        summed: whether the silo is in the sum.
        """
        return pending

    @abstractmethod
    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        """The state after a query with a sum. Only this method divides by public numbers."""

    def units_in_sum(self, query: Query, total: Total, plan: Plan) -> float:
        """The expected total weight of the contributions to a sum if each unit is in one silo."""
        return self.contributors.units_in_sum(plan.federation, query.round, len(total.silos))

    @final
    def next_state(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        """The state after a query with a sum. Where messages repeat the sums of earlier rounds,
        `global_update` gets the estimate of this round's own sum; where the bound adapts, the sum
        of the clipped vectors."""
        total, slots = estimated(state, query, total)
        if query.mechanism.marks:
            total, bound = adapted(state, query, total, self.units_in_sum(query, total, plan))
            slots = {**slots, **bound}
        found = self.global_update(state, query, total, plan)
        return replace(found, slots={**found.slots, **slots})

    keeps_released: ClassVar[bool] = False
    """Whether the models that silos keep, and that are evaluated, are made of noised values alone,
    all of which the certificate of the released model charges."""

    # -- metrics, on demand; no epsilon covers them ------------------------------------------------

    @property
    def regulariser(self) -> Regulariser | None:
        """The regulariser f1 that the method minimises besides the training loss f0; None: none."""
        return None

    # -- the result --------------------------------------------------------------------------------

    releases_model: ClassVar[bool] = True
    """Whether a run releases a model; False: it releases `table`, and nothing is evaluated."""

    def table(self, state: State, plan: Plan) -> list[dict[str, Any]]:
        """The rows of statistics.csv, computed from the state and public numbers."""
        return []

    def output(self, state: State) -> np.ndarray:
        """The parameters (d,) that the run releases at the end."""
        return state.params

    def evaluated(self, state: State, silo_states: Mapping[str, SiloState]) -> np.ndarray:
        """The models to evaluate: one model (d,), or one model for each silo (n_silos, d).

        silo_states: states of the silos after the last stateful query, by the silo's name.
        """
        return self.output(state)


CALIBRATIONS = ("given", "paper", "certified")
"""How a method chooses its noise: as configured, by its paper's formula, or by its certificate for
a target."""


def idle_noise(calibration: str) -> dict[str, str]:
    """Arguments of a method with calibrated noise that `calibration` does not use: name: setting
    that makes it so."""
    names = ("epsilon", "delta") if calibration == "given" else ("noise_multiplier",)
    return dict.fromkeys(names, f"algo.calibration={calibration}")


def require_one_of(algo: Algorithm, **allowed: Iterable[str]) -> None:
    """Raise ConfigError unless each of these arguments has one of its names."""
    for name, names in allowed.items():
        value = getattr(algo, name)
        require(value in names, f"algo.{name}", value, ", ".join(names))


def require_counts(algo: Algorithm, *names: str) -> None:
    """Raise ConfigError unless each of these arguments is a positive number or None."""
    for name in names:
        value = getattr(algo, name)
        require(value is None or value >= 1, f"algo.{name}", value, "a positive integer, or null")
