"""ULDP-AVG and ULDP-SGD: user-level differential privacy across silos by per-user clipping.

Kato, Xiong, Takagi, Cao, Yoshikawa: Uldp-FL: Federated learning with across-silo user-level
differential privacy, PVLDB 2024, Algorithm 3; weighting="records" is the enhanced weighting of
section 4.1 (ULDP-AVG-w), user_rate < 1 the user-level sub-sampling of Algorithm 4.

weighting="home" is ours: users who have one silo each, by how owners are found, count in full
there, as by weights of records, but without anybody's counts.

Symbols: C -> clip, sigma -> noise_multiplier, q -> user_rate, w_su -> contributors.weighting,
eta_l -> local_lr, eta_g -> global_lr, Q -> local_epochs, B -> batch_size, S ->
Federation.n_silos, U -> Federation.n_users, n_su -> counts[s, u].

With budgets every user has the bound of its group, w = C_g / C in `UserGroup.bound`, and the server
divides by the sum of these bounds where Algorithm 3 divides by the number of users. This is no part
of the paper.

Privacy: unit user, adjacency add/remove of all records of one user in all silos. The sum over silos
has sensitivity C, since the weights of a user add up to at most 1. Its noise is N(0, sigma^2 C^2
I); every silo adds 1/S of the variance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from fedpriv.accountants.events import SERVER
from fedpriv.algorithms.base import Algorithm, require_one_of
from fedpriv.algorithms.budgets import (
    Budget,
    Spending,
    check_budgets,
    noise_multipliers,
    user_groups,
)
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import ObservedRelease, Request
from fedpriv.certificates.sampling import Coins
from fedpriv.errors import require, require_positive
from fedpriv.rounds.contributors import WEIGHTINGS, Users
from fedpriv.rounds.plan import UPDATE, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State
from fedpriv.training.description import Recipe
from fedpriv.training.optimizers import Sgd

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.mechanisms.base import Mechanism


LONGER = 1.5
"""Length of a step without `global_lr`, relative to the mean of the clipped changes. Clipping has
shortened them; on the 20 tables of `scripts.table_defaults` it is within 3 % of the best length."""


LETTERS = {"uniform": "", "records": "w", "home": "h"}


@dataclass(frozen=True)
class UldpBase(Algorithm):
    """Base of ULDP-AVG and ULDP-SGD.

    clip: C, bound on one user's vector in one silo; with budgets that of the largest epsilon.
    noise_multiplier: sigma, noise relative to clip; with budgets it follows from them.
    user_rate: q, probability that a user takes part in a round.
    weighting: uniform (1 / S), records (n_su / N_u) or home (1; every user has one silo).
    global_lr: eta_g, learning rate of the server; None: the one that moves the model by `LONGER`
        times the mean of the clipped changes if each user is in one silo: by weights of records and
        at home S times as much, under uniform weighting S^2 times.
    cycle: number of public parts of the users that take turns, one part a round; 1: every user
        takes part in every round.
    budgets: budget of each group of users, by name; None: all users have one epsilon.
    rounds: rounds that budgets are spent on; None without budgets.
    delta: delta of budgets.
    """

    clip: float
    noise_multiplier: float
    user_rate: float
    weighting: str
    global_lr: float | None
    cycle: int = field(default=1, kw_only=True)
    budgets: dict[str, Budget] | None = field(default=None, kw_only=True)
    rounds: int | None = field(default=None, kw_only=True)
    delta: float = field(default=1e-5, kw_only=True)

    def __post_init__(self) -> None:
        require(
            0 < self.user_rate <= 1,
            "algo.user_rate",
            self.user_rate,
            "a probability above 0 and at most 1",
        )
        require_one_of(self, weighting=WEIGHTINGS)
        require_positive("algo", self, "cycle", *([] if self.global_lr is None else ["global_lr"]))
        if self.budgets is not None:
            allowed = "a number of rounds, since algo.budgets are spent on them"
            require(self.rounds is not None, "algo.rounds", "null", allowed)
            check_budgets(self.budgets, self._spending)
            allowed = "1, since groups of users with budgets do not take turns"
            require(self.cycle == 1, "algo.cycle", self.cycle, allowed)

    def check(self, plan: Plan) -> None:
        users = plan.federation.n_users
        require(self.cycle <= users, "algo.cycle", self.cycle, f"at most {users}, the users")
        self.contributors.bounds(plan.federation, 1)  # every user has a group
        plan.parameters.check_noise()

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        if self.budgets is not None:
            return {"noise_multiplier": "algo.budgets, which it follows from"}
        return dict.fromkeys(("rounds", "delta"), "algo.budgets=null")

    @abstractmethod
    def recipe(self, plan: Plan) -> Recipe:
        """The recipe of local training on one user's records."""

    family: ClassVar[str]
    """The method's name without the letters for weights (w, h) and sub-sampling (s)."""

    @property
    def label(self) -> str:
        letters = LETTERS[self.weighting] + ("s" if self.user_rate < 1 else "")
        rate = f" q={self.user_rate:g}" if self.user_rate < 1 else ""
        return f"{self.family}-{letters}{rate}" if letters else self.family

    @property
    def contributors(self) -> Users:
        groups = user_groups(self.budgets, self._spending) if self.budgets else ()
        return Users(WEIGHTINGS[self.weighting](), self.user_rate, groups, self.cycle)

    @property
    def _spending(self) -> Spending:
        return Spending(self.rounds or 0, self.delta, self.user_rate)

    @property
    def rounds_alike(self) -> bool:
        lasting = all(budget.rounds is None for budget in (self.budgets or {}).values())
        return lasting and self.cycle == 1

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        if not self.budgets:
            return super().mechanisms(mechanism)
        return {UPDATE: mechanism.with_noise(min(self._needed.values()))}

    @property
    def _needed(self) -> dict[str, float]:
        return noise_multipliers(self.budgets or {}, self._spending)

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        mechanism = draft.mechanism
        if not self.budgets:
            return super().calibrated(draft)
        # Rounding moves a sum further, relative to the smallest bound the most. The grid of the
        # larger noise is at most twice as coarse.
        rounding = mechanism.rounding(draft.encoding, draft.federation.n_parameters)
        noise = mechanism.noise_multiplier + 2 * rounding * max(self._needed.values())
        return {UPDATE: mechanism.with_noise(noise)}

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(SumNoise(), recipe=self.recipe(plan)),)

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        """The paper claims the epsilon of the released model for every observer. With sub-sampling
        it excludes a server that sees the sample."""
        observer = view.observer
        left_out = observer.name == SERVER and observer.sees_sample and self.user_rate < 1
        own = view.group is not None or view.turn is not None  # no part of the paper
        if left_out or not view.mechanism.clips or own:
            return None
        return Coins(self.user_rate).event(view.mechanism.event(), 1, 1)

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        if self.global_lr is None:
            step = LONGER / self.units_in_sum(query, total, plan)
        else:
            # A sum over E of the S silos is scaled by S / E: n_users * S becomes n_users * E.
            users = self.contributors.whole(plan.federation, query.round)
            step = self.global_lr / (self.user_rate * users * len(total.silos))
        return state.with_params(state.params + step * total.vector)


@dataclass(frozen=True)
class UldpAvg(UldpBase):
    """ULDP-AVG, Algorithm 3: several epochs of SGD on each user's records, then clipping of the
    change.

    local_epochs: Q, passes over a user's records in a round.
    batch_size: B, records of a local batch.
    local_lr: eta_l, learning rate of local training.
    """

    local_epochs: int
    batch_size: int
    local_lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("algo", self, "local_epochs", "batch_size", "local_lr")

    family = "ULDP-AVG"

    def recipe(self, plan: Plan) -> Recipe:
        return Recipe(self.local_epochs, self.batch_size, self.local_lr, plan.optimizer)


@dataclass(frozen=True)
class UldpSgd(UldpBase):
    """ULDP-SGD: the clipped mean gradient of each user's records at the global model."""

    def check(self, plan: Plan) -> None:
        super().check(plan)
        plan.optimizer.require_plain()

    family = "ULDP-SGD"

    def recipe(self, plan: Plan) -> Recipe:
        # One full-batch step of rate 1 changes the model by exactly minus the mean gradient.
        return Recipe(epochs=1, batch_size=None, lr=1.0, optimizer=Sgd())
