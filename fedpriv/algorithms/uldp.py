"""ULDP-AVG and ULDP-SGD: user-level differential privacy across silos by per-user clipping.

Kato, Xiong, Takagi, Cao, Yoshikawa: Uldp-FL: Federated learning with across-silo user-level differential privacy,
PVLDB 2024, Algorithm 3; weighting="records" is the enhanced weighting of section 4.1 (ULDP-AVG-w), user_rate < 1 the
user-level sub-sampling of Algorithm 4.

Symbols: C -> clip, sigma -> noise_multiplier, q -> user_rate, w_su -> weights, eta_l -> local_lr, eta_g -> global_lr,
Q -> local_epochs, B -> batch_size, S -> Federation.n_silos, U -> Federation.n_users, n_su -> counts[s, u].

Privacy: unit user, adjacency add/remove of all of one user's records in all silos. The sum over silos has sensitivity C
(the weights of a user add up to at most 1) and noise N(0, sigma^2 C^2 I), of which every silo adds 1/S of the variance.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.aggregation.base import SERVER, Aggregation, Total
from fedpriv.algorithms.base import Algorithm, Federation, Local, Plan, Tally, Update
from fedpriv.algorithms.local_training import trained
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.training import LocalSgd


def uniform(counts: np.ndarray) -> np.ndarray:
    """w_su = 1 / S for every pair, also where a user has no records."""
    return np.full(counts.shape, 1.0 / len(counts))


def records(counts: np.ndarray) -> np.ndarray:
    """w_su = n_su / N_u, and 0 for a user without records (equation 4)."""
    return counts / np.maximum(counts.sum(axis=0), 1)


WEIGHTINGS = {"uniform": uniform, "records": records}


@dataclass(frozen=True)
class UldpBase(Algorithm):
    """What ULDP-AVG and ULDP-SGD share: clipping per user and silo, weights, noise shares, denominators, events."""

    clip: float
    noise_multiplier: float
    user_rate: float
    weighting: str
    global_lr: float

    def __post_init__(self) -> None:
        require(0 < self.user_rate <= 1, "algo.user_rate", self.user_rate, "a probability above 0 and at most 1")
        require(self.weighting in WEIGHTINGS, "algo.weighting", self.weighting, " or ".join(WEIGHTINGS))
        require(0 < self.global_lr < math.inf, "algo.global_lr", self.global_lr, "a positive number")

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        mechanism.check_grid(*self.agree(federation, mechanism, aggregation))

    @abstractmethod
    def recipe(self) -> LocalSgd:
        """How one user's records change the model."""

    @property
    @abstractmethod
    def family(self) -> str:
        """The method's name without the letters for weights and sub-sampling."""

    @property
    def label(self) -> str:
        letters = ("w" if self.needs_counts else "") + ("s" if self.user_rate < 1 else "")
        rate = f" q={self.user_rate:g}" if self.user_rate < 1 else ""
        return f"{self.family}-{letters}{rate}" if letters else self.family

    @property
    def sampling_rate(self) -> float:
        return self.user_rate

    @property
    def needs_counts(self) -> bool:
        return self.weighting == "records"

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return WEIGHTINGS[self.weighting](counts)

    def counts(self, local: Local, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_users, dtype=np.int64)
        counts[local.data.users] = local.data.counts
        return counts

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        sampled = None
        if self.user_rate < 1 and SERVER not in aggregation.hides_sample_from:
            sampled = streams.secret("user sample", round).random(federation.n_users) < self.user_rate
        covered, code = self.agree(federation, mechanism, aggregation)
        events = self.events(federation, mechanism, aggregation)
        cohort = tuple(range(federation.n_silos))
        return Plan(round, cohort, sampled, events, covered, code, streams, self.user_rate)

    def message_bound(self, federation: Federation, mechanism: Mechanism, covered: int) -> float:
        # Weights that depend on counts may give all users to one silo.
        silos = 1 if self.needs_counts else federation.n_silos
        return federation.n_users / silos * mechanism.clip + mechanism.noise_bound(covered)

    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        users = local.data.users
        positions = np.flatnonzero(plan.users[users]) if plan.users is not None else None
        rng = local.streams.secret("noise", plan.round, local.name)
        noise = local.mechanism.noise_share(len(theta), plan.covered, rng, code=plan.code)
        tally = Tally()
        blocks = trained(local, local.data, positions, users, theta, self.recipe(), plan.round, tally)
        return Update(blocks, noise, tally)

    def global_update(self, theta: np.ndarray, total: Total, federation: Federation) -> np.ndarray:
        # A sum over E of the S silos stands for S / E times as much: n_users * S divided by S / E.
        expected = self.user_rate * federation.n_users * len(total.parties)
        return theta + self.global_lr / expected * total.vector

    def events(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> tuple[Event, ...]:
        """What one round shows to whom.

        The released model hides the sample, so sub-sampling amplifies. For who sees the sample, as the server that
        draws it and the silos that train its users, a user counts as present in every round. A silo also knows its own
        noise share. The paper claims the released model's epsilon for everybody, and with sub-sampling leaves the
        server out, unless the sample is hidden from it.
        """
        covered, code = self.agree(federation, mechanism, aggregation)
        moved = 1 + mechanism.rounding(code, federation.n_parameters)
        whole, silo_sees = mechanism.event(moved), mechanism.event(moved, (covered - 1) / covered)
        released, claimed = self._sampled(whole), self._sampled(mechanism.event()) if mechanism.clips else None
        base = (
            *mechanism.assumptions(code),
            *aggregation.assumptions,
            "the weights of a user add up to at most 1",
            "all noise shares are present",
            "semi-honest parties",
        )
        hidden = aggregation.hides_sample_from
        views = {
            "released model": (released, ()),
            "server": self._server_event(released if "server" in hidden else whole, aggregation),
            "silo": self._silo_event(self._sampled(silo_sees) if "silo" in hidden else silo_sees, aggregation),
        }
        claims = dict.fromkeys(views, claimed)
        if self.user_rate < 1 and "server" not in hidden:
            claims["server"] = None
        events = []
        for observer, (certified, why) in views.items():
            if flaw := aggregation.flaw(observer):
                certified, why = _non_private(), (f"FAILS: {flaw}",)
            events.append(Event(observer, "user", ADD_REMOVE, certified, claims[observer], assumptions=(*base, *why)))
        return tuple(events)

    def _sampled(self, event: DpEvent) -> DpEvent:
        from dp_accounting import PoissonSampledDpEvent

        return PoissonSampledDpEvent(self.user_rate, event) if self.user_rate < 1 else event

    def _server_event(self, whole: DpEvent, aggregation: Aggregation) -> tuple[DpEvent, tuple[str, ...]]:
        if self.needs_counts and not aggregation.hides_counts:
            return _non_private(), ("FAILS: the server learns every user's record counts",)
        if aggregation.hides_messages:
            return whole, ("the server sees only the sum",)
        # The silos' messages one by one: contributions of at most C / S under noise of variance sigma^2 C^2 / S each
        # carry together as much information as their sum.
        return whole, ("the server sees every silo's noised message",)

    def _silo_event(self, others: DpEvent, aggregation: Aggregation) -> tuple[DpEvent, tuple[str, ...]]:
        if self.needs_counts and not aggregation.hides_counts:
            return _non_private(), ("FAILS: a silo's weights reveal its users' records elsewhere",)
        return others, ("one silo subtracts its own noise share and does not collude",)


def _non_private() -> DpEvent:
    from dp_accounting import NonPrivateDpEvent

    return NonPrivateDpEvent()


@dataclass(frozen=True)
class UldpAvg(UldpBase):
    """ULDP-AVG: several epochs of SGD on each user's records, then the clipped change (Algorithm 3)."""

    local_epochs: int
    batch_size: int
    local_lr: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.local_epochs >= 1, "algo.local_epochs", self.local_epochs, "a positive integer")
        require(self.batch_size >= 1, "algo.batch_size", self.batch_size, "a positive integer")
        require(0 < self.local_lr < math.inf, "algo.local_lr", self.local_lr, "a positive number")

    @property
    def family(self) -> str:
        return "ULDP-AVG"

    def recipe(self) -> LocalSgd:
        from fedpriv.training import LocalSgd

        return LocalSgd(self.local_epochs, self.batch_size, self.local_lr)


@dataclass(frozen=True)
class UldpSgd(UldpBase):
    """ULDP-SGD: the clipped mean gradient of each user's records, one evaluation at the global model."""

    @property
    def family(self) -> str:
        return "ULDP-SGD"

    def recipe(self) -> LocalSgd:
        from fedpriv.training import LocalSgd

        # One full-batch step of rate 1 changes the model by exactly minus the mean gradient.
        return LocalSgd(epochs=1, batch_size=None, lr=1.0)
