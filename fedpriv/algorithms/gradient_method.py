"""Base of the methods of Lowy, Ghafelebashi and Razaviyayn: noised mean gradients of batches, and
steps at the server.

Private non-convex federated learning without a trusted server (AISTATS 2023). Symbols: N ->
Federation.n_silos, M -> cohort, n -> Federation.silo_records, K -> batch_size, R -> rounds, L ->
clip, eta -> global_lr, f1 -> prox.

In a query each available silo draws a batch. Each record of the batch has one clipped gradient, or
the difference of two gradients at two points. Every gradient is clipped over the whole vector,
before any average. The server steps along the mean. Without a trusted server, each silo contributes
the mean of its batch plus its own Gaussian noise, of standard deviation noise_multiplier * clip /
K, where K is the silo's public batch size. In `record_gradients`, each record's vector is a
contribution.

Privacy: unit record, adjacency replace (add/remove with Poisson batches). A record is in one silo,
so silos are scopes. Every silo noises its own message, so no party needs to be trusted (inter-silo
record-level DP). Against an observer of single messages, only the silo's own noise counts. Against
an observer of sums, the noise of the other silos in the sum counts as well. All parties receive the
model after every query, so its certificate is no better than that against an observer of sums. A
run reports its epsilon against `observer`, by default the server.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.algorithms.base import idle_noise, require_one_of
from fedpriv.algorithms.gradient_queries import GRADIENT, GRADIENTS_PER_RECORD, noised_mean
from fedpriv.algorithms.participation import uniform
from fedpriv.algorithms.proximal import ProximalOperator, Regulariser
from fedpriv.algorithms.record_method import BatchMethod
from fedpriv.certificates.calibrate import certified_noise, count_releases
from fedpriv.certificates.noise import SiloNoise
from fedpriv.certificates.request import (
    ObservedRelease,
    Release,
    Request,
    Target,
    observed_releases,
)
from fedpriv.certificates.sampling import Batches, Sampling
from fedpriv.errors import require, require_positive
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import noise_for_rho
from fedpriv.rounds.contributors import Contributors
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.accountants.base import Accountant
    from fedpriv.accountants.zcdp import SmallEpsilonClaim

RECORD = Target("record", REPLACE)
RELEASED: dict[str, Callable[[int, float], bool]] = {
    "last": lambda seen, coin: True,
    "uniform": lambda seen, coin: coin * seen < 1,
}
"""Whether the newest of `seen` iterates replaces the current output. coin: uniform on [0, 1)."""


@dataclass(frozen=True)
class GradientMethod(BatchMethod, ABC):
    """Base of the methods.

    batch_size: K.
    global_lr: eta, learning rate of the server.
    prox: name of f1 (`fedpriv.algorithms.proximal`).
    prox_size: radius, bound or weight of f1.
    prox_group: number of coordinates of a group, for f1 = group_l1.
    released: last: release the last iterate; uniform: a uniformly random one.
    clip: L. `noise_multiplier` is that of a batch's mean gradient, relative to clip / K.
    cohort: M; drawn uniformly.
    least_cohort: the number of silos is drawn from least_cohort to cohort; None: always cohort.
    calibration: certified: the solver, over all releases of a silo.
    observer: observer whose certificate is calibrated.
    rounds: R.

    For users, the paper converts (epsilon_0, delta_0) of one record to (k epsilon_0, k e^((k - 1)
    epsilon_0) delta_0) (Appendix B, where a silo of k records is a user), or chooses epsilon_0 such
    that this is the target (Appendix G). The certificate is tighter: k records move a release k
    times as far as one record.
    """

    global_lr: float
    prox: str
    prox_size: float
    prox_group: int
    released: str
    least_cohort: int | None
    observer: str
    everywhere = True

    shuffles: ClassVar[bool] = True
    """Whether there is a form of the method with one contribution for each record."""

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.least_cohort
        require_positive("algo", self, "global_lr")
        require_one_of(self, released=RELEASED)
        fits = least is None or 1 <= least <= (self.cohort or math.inf)
        allowed = "a number of silos up to algo.cohort, or null for always algo.cohort"
        require(fits, "algo.least_cohort", least, allowed)
        ProximalOperator(self.prox, self.prox_size, self.prox_group)  # checks them

    # -- decisions of a method ---------------------------------------------------------------------

    @property
    @abstractmethod
    def batches(self) -> Batches:
        """How silos draw their batches."""

    @abstractmethod
    def query_names(self, round: int) -> tuple[str, ...]:
        """The names of a round's queries, in order."""

    @abstractmethod
    def size(self, name: str, records: int) -> int:
        """K, the batch size of query `name` in a silo of `records` records."""

    def sizes(self, name: str, records: int) -> tuple[int, ...]:
        """All batch sizes of query `name` in a run, in a silo of `records` records."""
        return (self.size(name, records),)

    def draws(self, round: int, name: str) -> tuple[Batches, Callable[[int], int]]:
        """How silos draw a query's batch in a round, and its size as a function of a silo's number
        of records."""
        return self.batches, partial(self.size, name)

    @property
    def claims(self) -> type[SmallEpsilonClaim] | None:
        """The paper's conversion from its zCDP-like sums to epsilon; None: its constants are
        unknown."""
        from fedpriv.accountants.zcdp import SmallEpsilonClaim

        return SmallEpsilonClaim

    def claimed_rho(self, name: str, records: int, noise_multiplier: float) -> float:
        """The rho of one release in the paper. The paper's formulas contain n, while the noise on a
        batch depends on K."""
        return (
            2
            * (GRADIENTS_PER_RECORD[name] * self.size(name, records) / (records * noise_multiplier))
            ** 2
        )

    def counted(self, name: str) -> float:
        """The number of releases for which the paper sizes the noise of query `name`."""
        return float(self.rounds)

    def overcounted(self, name: str) -> float:
        """The weight of one release in the claim. With it, the composition of all releases costs
        what the paper claims."""
        return 1.0

    def share(self, name: str) -> float:
        """The part of the certified budget, in zCDP, for releases of query `name`."""
        return 1.0

    # -- before the first round --------------------------------------------------------------------

    @property
    def adjacency(self) -> str:
        return self.batches.adjacency

    @property
    def headline_observer(self) -> str:
        return self.observer

    @property
    def operator(self) -> ProximalOperator:
        """The proximal operator of f1."""
        return ProximalOperator(self.prox, self.prox_size, self.prox_group)

    def check(self, plan: Plan) -> None:
        self.check_settings(plan)
        known = self.calibration != "paper" or self.claims is not None
        require(
            known,
            "algo.calibration",
            self.calibration,
            "certified or given: the paper's constants are not known",
        )
        held = self.least_cohort is None or bool(plan.threat_model.learners)
        allowed = "null: nobody would send the model to silos that are left out of a round"
        require(held, "algo.least_cohort", self.least_cohort, allowed)
        for name, parameters in plan.query_parameters.items():
            fixed = self.least_cohort is None or parameters.n_summed == parameters.n_invited
            allowed = "null: this aggregation's sums cover a fixed number of silos"
            require(fixed, "algo.least_cohort", self.least_cohort, allowed)
            silos_records = plan.federation.silo_records
            largest = max((max(self.sizes(name, records)) for records in silos_records), default=1)
            finest = 1 / largest
            parameters.mechanism.check_encoding(1, parameters.encoding, finest)

    def check_settings(self, plan: Plan) -> None:
        """Raise ConfigError for settings that cannot work, independently of who adds the noise."""
        silos = plan.federation.n_silos
        least = self.least_cohort or 1
        require(least <= silos, "algo.least_cohort", least, f"at most {silos}, the number of silos")
        plan.observer(self.observer)
        super().check(plan)

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        idle = idle_noise(self.calibration)
        names = {"none": ("prox_size", "prox_group"), "group_l1": ()}.get(
            self.prox, ("prox_group",)
        )
        return idle | dict.fromkeys(names, f"algo.prox={self.prox}")

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        return {GRADIENT: mechanism}

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        sizes = [
            (size, records)
            for records in federation.silo_records
            for size in self.sizes(name, records)
        ] or [(1, 1)]
        largest = max(self.batches.most(size, records) / size for size, records in sizes)
        least = min(size for size, _ in sizes)
        return GRADIENTS_PER_RECORD[name] * largest * mechanism.clip + mechanism.noise_bound(
            1, 1 / least
        )

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        mechanisms = super().calibrated(draft)
        if self.calibration == "given":
            return mechanisms
        if self.calibration == "paper":
            noise = self._claimed_noise(draft)
        else:
            noise = self.certified_noise(
                draft, self.requests, self.contributors, _silo_release, mechanisms
            )
        return {name: one.with_noise(noise[name]) for name, one in mechanisms.items()}

    @property
    def own_target(self) -> tuple[Accountant, int] | None:
        """That of users whose records are sampled one by one. The certificate of records that are
        in several silos is not that of any one of them, so the noise is solved for it."""
        from fedpriv.accountants.pld import RdpAndPld

        coins = self.protected > 1 and self.batches.own_coins
        if self.calibration != "certified" or not coins:
            return None
        return RdpAndPld(self.delta, target=self.epsilon), self.rounds

    def _claimed_noise(self, draft: Plan) -> dict[str, float]:
        """The paper's noise of each query name. Its formula ignores the other names."""
        claims = self.claims
        assert claims is not None  # methods without constants refuse calibration=paper
        rho = claims.rho_for(self.epsilon, self.delta)
        sizes = draft.federation.silo_records
        return {
            name: noise_for_rho(
                self.counted(name) * max(self.claimed_rho(name, n, 1.0) for n in sizes), rho
            )
            for name in draft.query_parameters
        }

    def certified_noise(
        self,
        draft: Plan,
        requests: Callable[[int, Plan], tuple[Request, ...]],
        contributors: Contributors,
        release: Callable[[ObservedRelease], Release],
        mechanisms: Mapping[str, Mechanism],
    ) -> dict[str, float]:
        """Noise multipliers by query name: one budget for all releases that a record is in. Without
        amplification the budget is spent exactly. For a user of several records none is counted.

        requests: of a round.
        release: of what `observer` sees of one record.
        """
        observer = draft.observer(self.observer)
        views = (
            view
            for round in range(1, self.rounds + 1)
            for request in requests(round, draft)
            for view in observed_releases(request, draft, contributors, [RECORD], [observer], round)
        )
        return certified_noise(
            count_releases(views, lambda view: release(view).of(self.protected)),
            {name: self.share(name) for name in mechanisms},
            mechanisms,
            sampling=self.batches if self.protected == 1 else Sampling(),
            adjacency=self.adjacency,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    # -- a round -----------------------------------------------------------------------------------

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos that are available in a round. Depends on no data."""
        most = self.n_invited(federation)
        if self.least_cohort is not None:
            most = int(
                streams.generator("cohort size", round).integers(self.least_cohort, most + 1)
            )
        return uniform(round, federation.n_silos, most, streams)

    def asked(self, round: int, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
        """The name of each query, and the arguments of its request for silos and batches."""
        invited = self.invited(round, plan.federation, plan.streams)
        for name in self.query_names(round):
            batches, size = self.draws(round, name)
            yield name, {"invited": invited, "batches": batches, "batch_size": size}

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        requests = []
        for name, drawn in self.asked(round, plan):
            parameters = plan.query_parameters[name]
            # Each silo's noise suffices for its own message: a sum over fewer silos is as private.
            # Lost silos are still drawn, and `n_invited` does not count them.
            not_drawn = max(0, parameters.n_invited - len(drawn["invited"]))
            n_summed = parameters.n_summed - not_drawn
            noise = SiloNoise(GRADIENTS_PER_RECORD[name], marks=True)
            requests.append(Request(noise, name=name, n_summed=n_summed, **drawn))
        return tuple(requests)

    def claimed(self, view: ObservedRelease, noise_multiplier: float) -> DpEvent | None:
        if self.claims is None:
            return None
        name = view.request.name
        rho = self.claimed_rho(name, view.records, noise_multiplier)
        return self.claims(self.overcounted(name) * rho)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        batches, size = self.draws(query.round, query.name)
        return noised_mean(silo, query, down, batches=batches, size=size(silo.public_records))

    @property
    def protected(self) -> int:
        """The number of records of the unit of `epsilon`: 1 for a record, k for a user."""
        return self.records_per_user or 1

    @property
    def regulariser(self) -> Regulariser:
        return Regulariser(self.operator, self.global_lr)

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

        seen: number of iterates to choose the output from, with the new one.
        """
        params = self.operator(state.params - self.global_lr * direction, self.global_lr)
        coin = float(plan.streams.generator("output", round).random())
        output_params = params if RELEASED[self.released](seen, coin) else state.slots["output"]
        return state.with_params(params, output=output_params, **slots)


def _silo_release(view: ObservedRelease) -> Release:
    """The noised mean of a silo, as an observer sees it."""
    noise = view.request.noise
    assert isinstance(noise, SiloNoise)
    release, _, _ = noise.seen(view)
    return release
