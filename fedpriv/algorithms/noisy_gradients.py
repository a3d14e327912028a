"""What the methods of Lowy, Ghafelebashi and Razaviyayn have in common: noised mean gradients, and steps at the server.

Private non-convex federated learning without a trusted server (AISTATS 2023). Symbols: N -> Federation.n_silos, M ->
cohort, n -> Federation.silo_records, K -> batch_size, R -> rounds, L -> clip, eta -> global_lr, f1 -> prox.

In a query each available silo sends the mean over a batch of one clipped gradient a record, or of the difference of two
(at two points, each clipped over the whole vector before anything is averaged), plus Gaussian noise of its own. Who
sees a silo's message sees it noised, so nobody needs to be trusted (inter-silo record-level DP). The noise has standard
deviation noise_multiplier * clip / K, where K is the silo's public batch size.

Privacy: unit record, adjacency replace (add/remove with Poisson batches); a record lives in one silo, so silos are
scopes. Against an observer of single messages a silo's own noise counts alone; against one of sums, that of the other
silos in the sum as well. The model is sent to everybody after every query, so what is certified of it is no better than
against an observer of sums; a run is known by its epsilon against `observer`, by default the server.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS, Event
from fedpriv.algorithms.base import LocalUpdate, Silo, require_plain_sgd, silo_name
from fedpriv.algorithms.batches import SAMPLING, Batches, paper_batch
from fedpriv.algorithms.participation import uniform
from fedpriv.algorithms.proximal import Proximal, gradient_mapping, proximal
from fedpriv.algorithms.releases import Met, Release, certified_noise
from fedpriv.algorithms.silo_unit import SiloAlgorithm, require_gradients_of_records
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.deployment import Deployment, Federation, Observer, View
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import noise_for_rho
from fedpriv.query import Contributions, Query
from fedpriv.state import State
from fedpriv.streams import Streams
from fedpriv.tally import Tally

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from fedpriv.accountants.zcdp import SmallEpsilonClaim

CALIBRATIONS = ("given", "paper", "certified")
GRADIENT, DIFFERENCE = "gradient", "difference"
HELD = {GRADIENT: 1, DIFFERENCE: 2}
"""How many clipped gradients of a record are in its part of a message, by the query's name."""
RELEASED: dict[str, Callable[[int, float], bool]] = {
    "last": lambda seen, coin: True,
    "uniform": lambda seen, coin: coin * seen < 1,
}
"""Whether the newest of `seen` iterates takes the place of the one kept so far; coin: uniform on [0, 1)."""


@dataclass(frozen=True)
class NoisyGradients(SiloAlgorithm, ABC):
    """Base of the methods.

    batch_size: None for the method's own choice. prox, prox_size, prox_group: f1 (`fedpriv.algorithms.proximal`).
    released: the last iterate or a uniformly random one. cohort: silos that are available in a round,
    uniformly drawn, None for all; least_cohort: with it their number is drawn too, from least_cohort to cohort.
    calibration: given takes `noise_multiplier`; paper the paper's formula, and certified the solver, for `epsilon`
    after `rounds` rounds at `delta`, all releases of a silo together. observer: whose certificate is calibrated.
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

    def __post_init__(self) -> None:
        size, cohort, least = self.batch_size, self.cohort, self.least_cohort
        require(size is None or size >= 1, "algo.batch_size", size, "a positive integer, or null")
        require(0 < self.global_lr < math.inf, "algo.global_lr", self.global_lr, "a positive number")
        require(self.released in RELEASED, "algo.released", self.released, " or ".join(RELEASED))
        require(cohort is None or cohort >= 1, "algo.cohort", cohort, "a positive number of silos, or null for all")
        fits = least is None or 1 <= least <= (cohort or math.inf)
        require(fits, "algo.least_cohort", least, "a number of silos up to algo.cohort, or null for always algo.cohort")
        require(self.calibration in CALIBRATIONS, "algo.calibration", self.calibration, ", ".join(CALIBRATIONS))
        require(0 < self.epsilon < math.inf, "algo.epsilon", self.epsilon, "a positive number")
        require(self.observer in OBSERVERS, "algo.observer", self.observer, ", ".join(OBSERVERS))
        proximal(self.prox, self.prox_size, self.prox_group)

    # -- what a method decides ----------------------------------------------------------------------------------------

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
        """How the paper goes from its zCDP-like sums to epsilon; None where its constants are not known."""
        from fedpriv.accountants.zcdp import SmallEpsilonClaim

        return SmallEpsilonClaim

    def claimed_rho(self, name: str, records: int, noise_multiplier: float) -> float:
        """What the paper takes for one release: its formulas have n where the noise on a batch has K."""
        return 2 * (HELD[name] * self.size(name, records) / (records * noise_multiplier)) ** 2

    def counted(self, name: str) -> float:
        """For how many releases the paper sizes the noise of this kind."""
        return float(self.rounds)

    def overcounted(self, name: str) -> float:
        """What one release weighs in the claim, so that all of them together cost what the paper says."""
        return 1.0

    # -- before the first round ---------------------------------------------------------------------------------------

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

    def check(self, deployment: Deployment) -> None:
        silos, sizes = deployment.federation.n_silos, deployment.federation.silo_records
        fits = self.cohort is None or self.cohort <= silos
        require(fits, "algo.cohort", self.cohort, f"at most {silos}, the number of silos")
        least = self.least_cohort or 1
        require(least <= silos, "algo.least_cohort", least, f"at most {silos}, the number of silos")
        deployment.observer(self.observer)
        require_plain_sgd(deployment)
        for name, channel in deployment.channels.items():
            bounded = self.calibration == "given" or channel.mechanism.clips
            require(bounded, "algo.calibration", self.calibration, "given, because this mechanism adds no noise")
            fixed = self.least_cohort is None or channel.n_summed == channel.n_invited
            allowed = "null: this aggregation's sums cover a fixed number of silos"
            require(fixed, "algo.least_cohort", self.least_cohort, allowed)
            finest = 1 / max((self.size(name, records) for records in sizes), default=1)
            channel.mechanism.check_encoding(1, channel.encoding, finest)

    def n_invited(self, federation: Federation) -> int:
        return self.cohort or federation.n_silos

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        return {GRADIENT: mechanism}

    def message_bound(self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation) -> float:
        sizes = [(self.size(name, records), records) for records in federation.silo_records] or [(1, 1)]
        largest = max(self.batches.most(size, records) / size for size, records in sizes)
        least = min(size for size, _ in sizes)
        return HELD[name] * largest * mechanism.clip + mechanism.noise_bound(1, 1 / least)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        require_gradients_of_records(data)
        smallest = int(allocation.counts().sum(axis=1).min())
        fits = self.batch_size is None or self.batch_size <= smallest
        require(fits, "algo.batch_size", self.batch_size, f"at most {smallest}, the records of the smallest silo")
        return allocation

    def calibrated(self, draft: Deployment) -> Mapping[str, Mechanism]:
        if self.calibration == "given":
            return super().calibrated(draft)
        noise = self._claimed_noise(draft) if self.calibration == "paper" else self._certified_noise(draft)
        return {name: channel.mechanism.with_noise(noise[name]) for name, channel in draft.channels.items()}

    def _claimed_noise(self, draft: Deployment) -> dict[str, float]:
        """Every kind by its own formula, as if it was alone."""
        claims = self.claims
        assert claims is not None  # methods without constants refuse calibration=paper
        rho = claims.rho_for(self.epsilon, self.delta)
        sizes = draft.federation.silo_records
        return {
            name: noise_for_rho(self.counted(name) * max(self.claimed_rho(name, n, 1.0) for n in sizes), rho)
            for name in draft.channels
        }

    def share(self, name: str) -> float:
        """The part of the certified budget, in zCDP, that releases of this kind may spend."""
        return 1.0

    def _certified_noise(self, draft: Deployment) -> dict[str, float]:
        """One budget for all releases that a record meets, exactly spent where batches are not amplified."""
        observer = draft.observer(self.observer)
        met: dict[str, Met] = {}
        for round in range(1, self.rounds + 1):
            for name in self.kinds(round):
                for scope, release, _ in self._releases(round, name, observer, draft):
                    met.setdefault(scope, Met())[release] += 1
        return certified_noise(
            met.values(),
            {name: self.share(name) for name in draft.channels},
            {name: channel.mechanism for name, channel in draft.channels.items()},
            batches=self.batches,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    # -- a round ------------------------------------------------------------------------------------------------------

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos that are available in a round; nobody's data enter."""
        most = self.n_invited(federation)
        if self.least_cohort is not None:
            most = int(streams.generator("cohort size", round).integers(self.least_cohort, most + 1))
        return uniform(round, federation.n_silos, most, streams)

    def queries(self, round: int, deployment: Deployment) -> tuple[Query, ...]:
        cohort = self.invited(round, deployment.federation, deployment.streams)
        return tuple(
            deployment.query(
                round,
                name=name,
                place=place,
                events=self._events(round, name, deployment),
                invited=cohort,
                n_summed=self._n_summed(name, len(cohort), deployment),
                enforced=False,
            )
            for place, name in enumerate(self.kinds(round))
        )

    def _n_summed(self, name: str, available: int, deployment: Deployment) -> int:
        """Every silo's noise is enough for itself, so that a sum over fewer silos is no less private."""
        channel = deployment.channels[name]
        return channel.n_summed - (channel.n_invited - available)

    def _releases(
        self, round: int, name: str, observer: Observer, deployment: Deployment
    ) -> Iterator[tuple[str, Release, str]]:
        """Scope and release of each silo in a query as an observer sees it, and why."""
        federation, channel = deployment.federation, deployment.channels[name]
        cohort = self.invited(round, federation, deployment.streams)
        others = max(0, self._n_summed(name, len(cohort), deployment) - 1 - observer.own_shares)
        rounding = channel.mechanism.rounding(channel.encoding, federation.n_parameters)
        sizes = {silo: self.size(name, federation.silo_records[silo]) for silo in cohort}
        for silo in cohort:
            size = sizes[silo]
            moved = HELD[name] * self.batches.moved(size) + rounding * size
            hidden, why = 1.0, f"the {observer.name} sees every silo's noised message: its own noise counts alone"
            if not observer.sees_messages:
                least = sorted((size / sizes[other]) ** 2 for other in cohort if other != silo)[:others]
                hidden, why = 1.0 + sum(least), f"the noise of {1 + len(least)} silos hides the sum"
            yield self.scope(silo, round), Release(name, moved, hidden, size, federation.silo_records[silo]), why

    def _events(self, round: int, name: str, deployment: Deployment) -> tuple[Event, ...]:
        channel, trust = deployment.channels[name], deployment.trust
        seen = {o.name: list(self._releases(round, name, o, deployment)) for o in trust.observers}
        rests_on = (
            "the number of a silo's records is public",
            "who takes part when is public and does not depend on data",
            self.batches.note,
        )
        events: list[Event] = []
        for place, (scope, release, _) in enumerate(next(iter(seen.values()))):
            claimed = self._claim(name, release.records, channel.mechanism)

            def see(observer: Observer, place: int = place, claimed: DpEvent | None = claimed) -> View:
                _, release, why = seen[observer.name][place]
                return View(release.event(channel.mechanism, self.batches), claimed, (why, *observer.subtracts))

            events += deployment.views(
                see,
                unit="record",
                adjacency=self.batches.adjacency,
                channel=channel,
                assumptions=rests_on,
                scope=scope,
            )
        return tuple(events)

    def _claim(self, name: str, records: int, mechanism: Mechanism) -> DpEvent | None:
        claims = self.claims
        if claims is None or not mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        if not mechanism.noise_multiplier:
            return NonPrivateDpEvent()
        return claims(self.overcounted(name) * self.claimed_rho(name, records, mechanism.noise_multiplier))

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        tally, size = Tally(), self.size(query.name, len(silo.data.x))
        rng = silo.streams.secret(query.stream("noise"), query.round, silo.name)
        noise = query.mechanism.noise_share(query.size, 1, rng, sensitivity=1 / size, encoding=query.encoding)
        return LocalUpdate(blocks=self._mean(silo, query, down, size=size, tally=tally), noise=noise, tally=tally)

    def _mean(
        self, silo: Silo, query: Query, down: Mapping[str, np.ndarray], *, size: int, tally: Tally
    ) -> Iterator[Contributions]:
        """The mean clipped gradient at "params", less that at "previous" where it is sent down: the same records, and
        the same dropout."""
        import torch

        from fedpriv.training.clipped import clipped_gradients
        from fedpriv.training.modes import seeded_dropout

        data, streams = silo.data, silo.streams
        rows = torch.from_numpy(self.batches.rows(silo, query, size)).to(data.x.device)
        x, y = data.x[rows], data.y[rows]
        gradients = clipped_gradients(silo.model, silo.task, query.mechanism.clip, shape=tuple(data.x.shape[1:]))
        seed = streams.torch_seed(query.stream("dropout"), query.round, silo.name)

        def total(point: np.ndarray) -> torch.Tensor:
            with seeded_dropout(x.device, seed):
                return gradients.sum(torch.from_numpy(point).to(x.device, torch.float32), x, y, tally=tally)

        mean = total(down["params"]) / size
        if "previous" in down:
            mean = mean - total(down["previous"]) / size
        yield Contributions(np.array([silo.index]), mean.unsqueeze(0))

    def penalty(self, params: np.ndarray) -> float:
        return self.operator.value(params)

    def gradient_mapping(self, params: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return gradient_mapping(params, gradient, self.global_lr, self.operator)

    def init(self, params: np.ndarray, deployment: Deployment) -> State:
        return State(params, {"output": params})

    def output(self, state: State) -> np.ndarray:
        return state.slots["output"]

    def stepped(
        self, state: State, direction: np.ndarray, *, round: int, seen: int, deployment: Deployment, **slots: np.ndarray
    ) -> State:
        """The state after w = prox(w - eta * direction). seen: iterates to choose the output from, the new one among
        them."""
        params = self.operator(state.params - self.global_lr * direction, self.global_lr)
        coin = float(deployment.streams.generator("output", round).random())
        kept = params if RELEASED[self.released](seen, coin) else state.slots["output"]
        return state.with_params(params, output=kept, **slots)


@dataclass(frozen=True)
class SampledGradients(NoisyGradients, ABC):
    """Methods that draw a batch a query.

    sampling: without_replacement, poisson (records are then added or removed), or with_replacement, as in the paper's
    programs, which is hardly private.
    """

    sampling: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sampling in SAMPLING, "algo.sampling", self.sampling, ", ".join(SAMPLING))

    @property
    def batches(self) -> Batches:
        return SAMPLING[self.sampling]

    def size(self, name: str, records: int) -> int:
        return min(records, self.batch_size or paper_batch(records, self.rounds))
