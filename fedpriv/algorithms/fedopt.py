"""FedOpt: federated averaging whose server applies an optimiser to the mean change.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: Adaptive federated optimization,
ICLR 2021, Algorithms 1 and 2 (adagrad, adam, yogi; without bias correction, as printed); momentum
is FedAvgM (Hsu, Qi, Brown, 2019). Symbols: Delta_t -> mean of the silos' changes, eta -> global_lr,
eta_l -> local_lr, beta_1 -> momentum, beta_2 -> second_moment, tau -> adaptivity, m_t -> slot
"momentum", v_t -> slot "second_moment", which starts at tau^2.

Privacy: none; `UldpOpt` that of ULDP-AVG, whose noised sums the optimiser follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fedpriv.algorithms.base import Algorithm, require_one_of
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.algorithms.uldp import UldpAvg
from fedpriv.errors import require, require_positive
from fedpriv.rounds.plan import Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

SecondMoment = Callable[[np.ndarray, np.ndarray, float], np.ndarray]
"""v_t from v_{t-1}, Delta_t^2 and beta_2."""

SECOND_MOMENTS: dict[str, SecondMoment] = {
    "adagrad": lambda v, square, beta: v + square,
    "adam": lambda v, square, beta: beta * v + (1 - beta) * square,
    "yogi": lambda v, square, beta: v - (1 - beta) * square * np.sign(v - square),
}
RULES = ("momentum", *SECOND_MOMENTS)


@dataclass(frozen=True, kw_only=True)
class ServerOptimizer(Algorithm, ABC):
    """A server that applies an optimiser to the mean change.

    rule: the server's optimiser: momentum, adagrad, adam or yogi.
    momentum: beta_1.
    second_moment: beta_2, of adam and yogi.
    adaptivity: tau, which keeps the denominators of adagrad, adam and yogi away from zero.
    """

    rule: str
    momentum: float
    second_moment: float
    adaptivity: float

    def __post_init__(self) -> None:
        require_one_of(self, rule=RULES)
        for key in ("momentum", "second_moment"):
            require(
                0 <= getattr(self, key) < 1, f"algo.{key}", getattr(self, key), "from 0 to below 1"
            )
        require_positive("algo", self, "adaptivity")

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        unused = {"momentum": ("second_moment", "adaptivity"), "adagrad": ("second_moment",)}
        idle = dict.fromkeys(unused.get(self.rule, ()), f"algo.rule={self.rule}")
        return {**super().idle_keys(plan), **idle}

    def init(self, params: np.ndarray, plan: Plan) -> State:
        slots = {"momentum": np.zeros_like(params)}
        if self.rule in SECOND_MOMENTS:
            slots["second_moment"] = np.full_like(params, self.adaptivity**2)
        return State(params, slots)

    @property
    @abstractmethod
    def server_lr(self) -> float:
        """eta."""

    @abstractmethod
    def mean_change(self, query: Query, total: Total, plan: Plan) -> np.ndarray:
        """Delta_t, (d,)."""

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        change = self.mean_change(query, total, plan)
        if self.rule == "momentum":
            momentum = self.momentum * state.slots["momentum"] + change
            return state.with_params(state.params + self.server_lr * momentum, momentum=momentum)
        momentum = self.momentum * state.slots["momentum"] + (1 - self.momentum) * change
        second = SECOND_MOMENTS[self.rule](
            state.slots["second_moment"], change**2, self.second_moment
        )
        step = self.server_lr * momentum / (np.sqrt(second) + self.adaptivity)
        return state.with_params(state.params + step, momentum=momentum, second_moment=second)


@dataclass(frozen=True)
class FedOpt(ServerOptimizer, FedAvg):
    """Federated averaging with an optimiser at the server."""

    def __post_init__(self) -> None:
        FedAvg.__post_init__(self)
        super().__post_init__()

    @property
    def server_lr(self) -> float:
        return self.global_lr

    @property
    def label(self) -> str:
        return f"FedOpt {self.rule}"

    def mean_change(self, query: Query, total: Total, plan: Plan) -> np.ndarray:
        return total.vector / len(total.silos)


@dataclass(frozen=True)
class UldpOpt(ServerOptimizer, UldpAvg):
    """ULDP-AVG with an optimiser at the server, which sees the noised sums only: the certificate is
    that of ULDP-AVG."""

    def __post_init__(self) -> None:
        UldpAvg.__post_init__(self)
        super().__post_init__()
        require_positive("algo", self, "server_lr")

    @property
    def label(self) -> str:
        return f"{super().label} {self.rule}"

    @property
    def server_lr(self) -> float:
        return self.global_lr or 0.0

    def mean_change(self, query: Query, total: Total, plan: Plan) -> np.ndarray:
        return total.vector / self.units_in_sum(query, total, plan)
