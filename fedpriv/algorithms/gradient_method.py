"""The methods of Lowy, Ghafelebashi and Razaviyayn, whoever adds the noise: batches, queries, steps
at the server.

Private non-convex federated learning without a trusted server (AISTATS 2023). Symbols: N ->
Federation.n_silos, M -> cohort, n -> Federation.silo_records, K -> batch_size, R -> rounds, L ->
clip, eta -> global_lr, f1 -> prox.

In a query each available silo draws a batch, whose records have a clipped gradient each, or the
difference of two (at two points, each clipped over the whole vector before anything is averaged),
and the server steps along their mean. In `noisy_gradients` a silo contributes its noised mean; in
`record_gradients` every record's vector is a contribution.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import REPLACE, Event
from fedpriv.algorithms.base import (
    Algorithm,
    require_cohort,
    require_plain_sgd,
    require_target,
    silo_name,
)
from fedpriv.algorithms.batches import Batches
from fedpriv.algorithms.participation import uniform
from fedpriv.algorithms.proximal import Proximal, gradient_mapping, proximal
from fedpriv.algorithms.record_groups import bounded, require_records_per_user, user_assumptions
from fedpriv.algorithms.silo_unit import require_gradients_of_records
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Channel, Federation, ObservedRelease, Observer, Plan
from fedpriv.rounds.state import State
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    from fedpriv.accountants.zcdp import SmallEpsilonClaim

GRADIENT = "gradient"
DIFFERENCE = "difference"
GRADIENTS_PER_RECORD = {GRADIENT: 1, DIFFERENCE: 2}
"""How many clipped gradients of a record are in its part of a message, by the query's name."""
RELEASED: dict[str, Callable[[int, float], bool]] = {
    "last": lambda seen, coin: True,
    "uniform": lambda seen, coin: coin * seen < 1,
}
"""Whether the newest of `seen` iterates takes the place of the one kept so far; coin: uniform on
[0, 1)."""


@dataclass(frozen=True)
class GradientMethod(Algorithm, ABC):
    """Base of the methods.

    batch_size: None for the method's own choice.
    prox, prox_size, prox_group: f1 (`fedpriv.algorithms.proximal`).
    released: the last iterate or a uniformly random one.
    cohort: silos that are available in a round, uniformly drawn, None for all;
    least_cohort: with it their number is drawn too, from least_cohort to cohort.
    calibration: given takes `noise_multiplier`; paper the paper's formula, and certified the
        solver, for `epsilon` after `rounds` rounds at `delta`, all releases of a silo together.
    observer: whose certificate is calibrated.
    records_per_user: k, most records of a user over all silos that train, others are left out; the
        certified noise is then for a user's `epsilon`. None: nothing is said of users, and
        `epsilon` is a record's, as in the paper's formula.

    For users the paper takes epsilon_0 at delta_0 of one record to (k epsilon_0, k e^((k - 1)
    epsilon_0) delta_0) (Appendix B, a silo of k records being a user), or chooses epsilon_0 so that
    this is what is asked for (Appendix G, both at once). Certified is what k records move, which is
    less: k times as far as one.
    """

    batch_size: int | None
    global_lr: float
    prox: str
    prox_size: float
    prox_group: int
    released: str
    clip: float
    noise_multiplier: float
    cohort: int | None
    least_cohort: int | None
    calibration: str
    epsilon: float
    observer: str
    rounds: int
    delta: float
    records_per_user: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_records_per_user(self.records_per_user)
        size = self.batch_size
        cohort = self.cohort
        least = self.least_cohort
        require(size is None or size >= 1, "algo.batch_size", size, "a positive integer, or null")
        require(
            0 < self.global_lr < math.inf, "algo.global_lr", self.global_lr, "a positive number"
        )
        require(self.released in RELEASED, "algo.released", self.released, " or ".join(RELEASED))
        require_cohort(cohort)
        fits = least is None or 1 <= least <= (cohort or math.inf)
        require(
            fits,
            "algo.least_cohort",
            least,
            "a number of silos up to algo.cohort, or null for always algo.cohort",
        )
        require_target(self.calibration, self.epsilon)
        proximal(self.prox, self.prox_size, self.prox_group)

    # -- what a method decides ---------------------------------------------------------------------

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """How silos draw."""

    @abstractmethod
    def kinds(self, round: int) -> tuple[str, ...]:
        """The names of a round's queries, in their order."""

    @abstractmethod
    def size(self, name: str, records: int) -> int:
        """K of a query in a silo of `records`."""

    def scope(self, silo: int, round: int) -> str:
        """The disjoint part of the data that a silo's message of a round is made of."""
        return silo_name(silo)

    @property
    def claims(self) -> type[SmallEpsilonClaim] | None:
        """How the paper goes from its zCDP-like sums to epsilon; None where its constants are not
        known."""
        from fedpriv.accountants.zcdp import SmallEpsilonClaim

        return SmallEpsilonClaim

    def claimed_rho(self, name: str, records: int, noise_multiplier: float) -> float:
        """What the paper takes for one release: its formulas have n where the noise on a batch has
        K."""
        return (
            2
            * (GRADIENTS_PER_RECORD[name] * self.size(name, records) / (records * noise_multiplier))
            ** 2
        )

    def counted(self, name: str) -> float:
        """For how many releases the paper sizes the noise of this kind."""
        return float(self.rounds)

    def overcounted(self, name: str) -> float:
        """What one release weighs in the claim, so that all of them together cost what the paper
        says."""
        return 1.0

    def share(self, name: str) -> float:
        """The part of the certified budget, in zCDP, that releases of this kind may spend."""
        return 1.0

    # -- before the first round --------------------------------------------------------------------

    @property
    def queries_need_allocation(self) -> bool:
        return True

    @property
    def headline_observer(self) -> str:
        return self.observer

    @property
    def operator(self) -> Proximal:
        """That of f1."""
        return proximal(self.prox, self.prox_size, self.prox_group)

    def check(self, plan: Plan) -> None:
        silos = plan.federation.n_silos
        fits = self.cohort is None or self.cohort <= silos
        require(fits, "algo.cohort", self.cohort, f"at most {silos}, the number of silos")
        least = self.least_cohort or 1
        require(least <= silos, "algo.least_cohort", least, f"at most {silos}, the number of silos")
        plan.observer(self.observer)
        require_plain_sgd(plan)
        for channel in plan.channels.values():
            clipped = self.calibration == "given" or channel.mechanism.clips
            require(
                clipped,
                "algo.calibration",
                self.calibration,
                "given, because this mechanism adds no noise",
            )
        replaced = self.records_per_user is None or self.batches.adjacency == REPLACE
        allowed = "given, because no noise is known for a user whose records are sampled one by one"
        require(
            replaced or self.calibration != "certified",
            "algo.calibration",
            self.calibration,
            allowed,
        )

    def n_invited(self, federation: Federation) -> int:
        return self.cohort or federation.n_silos

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        return {GRADIENT: mechanism}

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        require_gradients_of_records(data)
        allocation = bounded(allocation, self.records_per_user)
        smallest = int(allocation.silo_sizes().min())
        allowed = "fewer, or more records: a silo has none to train on"
        require(smallest >= 1, "allocator.n_silos", len(allocation.counts()), allowed)
        fits = self.batch_size is None or self.batch_size <= smallest
        require(
            fits,
            "algo.batch_size",
            self.batch_size,
            f"at most {smallest}, the records of the smallest silo",
        )
        return allocation

    # -- a round -----------------------------------------------------------------------------------

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos that are available in a round; nobody's data enter."""
        most = self.n_invited(federation)
        if self.least_cohort is not None:
            most = int(
                streams.generator("cohort size", round).integers(self.least_cohort, most + 1)
            )
        return uniform(round, federation.n_silos, most, streams)

    def charged(
        self,
        plan: Plan,
        channel: Channel,
        see: Callable[[Observer, Batches], ObservedRelease],
        *,
        assumptions: tuple[str, ...],
        scope: str,
    ) -> tuple[Event, ...]:
        """The events of one scope of a query: of records, and of users where a bound on their
        records is known.

        see: what an observer is shown of one record, by what is proved of the batches.
        """
        rests_on = (*assumptions, self.batches.note)
        adjacency = self.batches.adjacency
        k = self.records_per_user

        def observed_events(
            batches: Batches, unit: str, *why: str, group_size: int = 1
        ) -> tuple[Event, ...]:
            return plan.observed_events(
                lambda observer: see(observer, batches),
                unit=unit,
                adjacency=adjacency,
                channel=channel,
                assumptions=(*rests_on, *why),
                scope=scope,
                group_size=group_size,
            )

        of_records = observed_events(self.batches, "record")
        if k is None:
            return of_records
        return of_records + observed_events(
            self.grouped, "user", *user_assumptions(k, adjacency), group_size=k
        )

    @property
    def grouped(self) -> Batches:
        """What is proved of the batches for whoever `epsilon` speaks of."""
        return self.batches if self.records_per_user in (None, 1) else self.batches.of_groups

    @property
    def protected(self) -> int:
        """Records of whoever `epsilon` speaks of."""
        return self.records_per_user or 1

    def penalty(self, params: np.ndarray) -> float:
        return self.operator.value(params)

    def gradient_mapping(self, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return gradient_mapping(params, gradient, self.global_lr, self.operator)

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(params, {"output": params})

    def output(self, state: State) -> np.ndarray:
        return state.slots["output"]

    def stepped(
        self,
        state: State,
        direction: np.ndarray,
        *,
        round: int,
        seen: int,
        plan: Plan,
        **slots: np.ndarray,
    ) -> State:
        """The state after w = prox(w - eta * direction).

        seen: iterates to choose the output from, the new one among them.
        """
        params = self.operator(state.params - self.global_lr * direction, self.global_lr)
        coin = float(plan.streams.generator("output", round).random())
        kept = params if RELEASED[self.released](seen, coin) else state.slots["output"]
        return state.with_params(params, output=kept, **slots)
