"""ULDP-AVG and ULDP-SGD: user-level differential privacy across silos by per-user clipping.

Kato, Xiong, Takagi, Cao, Yoshikawa: Uldp-FL: Federated learning with across-silo user-level
differential privacy, PVLDB 2024, Algorithm 3; weighting="records" is the enhanced weighting of
section 4.1 (ULDP-AVG-w), user_rate < 1 the user-level sub-sampling of Algorithm 4.

Symbols: C -> clip, sigma -> noise_multiplier, q -> user_rate, w_su -> unit_weighting, eta_l ->
local_lr, eta_g -> global_lr, Q -> local_epochs, B -> batch_size, S -> Federation.n_silos, U ->
Federation.n_users, n_su -> counts[s, u].

Privacy: unit user, adjacency add/remove of all of one user's records in all silos. The sum over
silos has sensitivity C (the weights of a user add up to at most 1) and noise N(0, sigma^2 C^2 I),
of which every silo adds 1/S of the variance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, RELEASED_MODEL, SERVER, Event
from fedpriv.algorithms.base import Algorithm, LocalUpdate, Silo, require_plain_sgd
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.rounds.plan import Federation, ObservedRelease, Observer, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State
from fedpriv.rounds.weighting import WEIGHTINGS, Weighting
from fedpriv.training.description import Recipe, Training
from fedpriv.training.optimizers import Sgd

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.data.silo import SiloData


@dataclass(frozen=True)
class UldpBase(Algorithm):
    """What ULDP-AVG and ULDP-SGD share: clipping per user and silo, weights, noise shares,
    denominators, events."""

    clip: float
    noise_multiplier: float
    user_rate: float
    weighting: str
    global_lr: float

    def __post_init__(self) -> None:
        require(
            0 < self.user_rate <= 1,
            "algo.user_rate",
            self.user_rate,
            "a probability above 0 and at most 1",
        )
        require(
            self.weighting in WEIGHTINGS, "algo.weighting", self.weighting, " or ".join(WEIGHTINGS)
        )
        require(
            0 < self.global_lr < math.inf, "algo.global_lr", self.global_lr, "a positive number"
        )

    def check(self, plan: Plan) -> None:
        plan.channel.check_noise()

    @abstractmethod
    def recipe(self, silo: Silo) -> Recipe:
        """How one user's records change the model."""

    @property
    @abstractmethod
    def family(self) -> str:
        """The method's name without the letters for weights and sub-sampling."""

    @property
    def label(self) -> str:
        letters = ("w" if self.unit_weighting.needs_counts else "") + (
            "s" if self.user_rate < 1 else ""
        )
        rate = f" q={self.user_rate:g}" if self.user_rate < 1 else ""
        return f"{self.family}-{letters}{rate}" if letters else self.family

    @property
    def sampling_rate(self) -> float:
        return self.user_rate

    @property
    def sums_any_number(self) -> bool:
        # A user's weights over all silos add up to at most 1, so those over some of them do.
        return True

    @property
    def unit_weighting(self) -> Weighting:
        return WEIGHTINGS[self.weighting]

    def n_units(self, federation: Federation) -> int:
        return federation.n_users

    def unit_counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_users, dtype=np.int64)
        counts[data.users] = data.counts
        return counts

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        # Weights that depend on counts may give all users to one silo.
        silos = 1 if self.unit_weighting.needs_counts else federation.n_silos
        return federation.n_users / silos * mechanism.clip + mechanism.noise_bound(n_summed)

    def queries(self, round: int, plan: Plan) -> tuple[Query, ...]:
        sampled = None
        if self.user_rate < 1 and not plan.hides_sample:
            drawn = plan.streams.secret("user sample", round).random(plan.federation.n_users)
            sampled = drawn < self.user_rate
        events = self.events(plan)
        return (plan.query(round, events=events, sampled=sampled, user_rate=self.user_rate),)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        users = (
            np.flatnonzero(query.sampled[silo.data.users]) if query.sampled is not None else None
        )
        return LocalUpdate(Training(self.recipe(silo), down["params"], users))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        # A sum over E of the S silos stands for S / E times as much: n_users * S divided by S / E.
        expected = self.user_rate * plan.federation.n_users * len(total.silos)
        return state.with_params(state.params + self.global_lr / expected * total.vector)

    def events(self, plan: Plan) -> tuple[Event, ...]:
        """What one round shows to whom.

        The released model hides the sample, so sub-sampling amplifies. For who sees the sample, as
        the server that draws it and the silos that train its users, a user counts as present in
        every round. A silo also knows its own noise share. The paper claims the released model's
        epsilon for everybody, and with sub-sampling leaves the server out, unless the sample is
        hidden from it.
        """
        mechanism = plan.mechanism
        n_summed = plan.n_summed
        moved = 1 + mechanism.rounding(plan.encoding, plan.federation.n_parameters)
        claimed = self._sampled(mechanism.event()) if mechanism.clips else None

        def see(observer: Observer) -> ObservedRelease:
            unknown = (n_summed - observer.own_shares) / n_summed
            release = mechanism.event(sensitivity=moved, shares=unknown)
            certified = release if observer.sees_sample else self._sampled(release)
            left_out = observer.name == SERVER and observer.sees_sample and self.user_rate < 1
            return ObservedRelease(
                certified, None if left_out else claimed, observer.subtracts or _seen_by(observer)
            )

        rests_on = (
            "the weights of a user add up to at most 1",
            "all noise shares are present",
            "semi-honest parties",
        )
        from_counts = self.unit_weighting.needs_counts
        return plan.observed_events(
            see,
            unit="user",
            adjacency=ADD_REMOVE,
            assumptions=rests_on,
            weights_from_counts=from_counts,
        )

    def _sampled(self, event: DpEvent) -> DpEvent:
        from dp_accounting import PoissonSampledDpEvent

        return PoissonSampledDpEvent(self.user_rate, event) if self.user_rate < 1 else event


def _seen_by(observer: Observer) -> tuple[str, ...]:
    if observer.name == RELEASED_MODEL:
        return ()
    # The silos' messages one by one: contributions of at most C / S under noise of variance sigma^2
    # C^2 / S each carry together as much information as their sum.
    seen = "sees every silo's noised message" if observer.sees_messages else "sees only the sum"
    return (f"the {observer.name} {seen}",)


@dataclass(frozen=True)
class UldpAvg(UldpBase):
    """ULDP-AVG: several epochs of SGD on each user's records, then the clipped change (Algorithm
    3)."""

    local_epochs: int
    batch_size: int
    local_lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.local_epochs >= 1, "algo.local_epochs", self.local_epochs, "a positive integer"
        )
        require(self.batch_size >= 1, "algo.batch_size", self.batch_size, "a positive integer")
        require(0 < self.local_lr < math.inf, "algo.local_lr", self.local_lr, "a positive number")

    @property
    def family(self) -> str:
        return "ULDP-AVG"

    def recipe(self, silo: Silo) -> Recipe:
        return Recipe(self.local_epochs, self.batch_size, self.local_lr, silo.plan.optimizer)


@dataclass(frozen=True)
class UldpSgd(UldpBase):
    """ULDP-SGD: the clipped mean gradient of each user's records, one evaluation at the global
    model."""

    def check(self, plan: Plan) -> None:
        super().check(plan)
        require_plain_sgd(plan)

    @property
    def family(self) -> str:
        return "ULDP-SGD"

    def recipe(self, silo: Silo) -> Recipe:
        # One full-batch step of rate 1 changes the model by exactly minus the mean gradient.
        return Recipe(epochs=1, batch_size=None, lr=1.0, optimizer=Sgd())
