"""Noised mean gradients of silos: the methods of `fedpriv.algorithms.gradient_method` without a
trusted server.

Each available silo sends the mean of its batch plus Gaussian noise of its own. Who sees a silo's
message sees it noised, so nobody needs to be trusted (inter-silo record-level DP). The noise has
standard deviation noise_multiplier * clip / K, where K is the silo's public batch size.

Privacy: unit record, adjacency replace (add/remove with Poisson batches); a record lives in one
silo, so silos are scopes. Against an observer of single messages a silo's own noise counts alone;
against one of sums, that of the other silos in the sum as well. The model is sent to everybody
after every query, so what is certified of it is no better than against an observer of sums; a run
is known by its epsilon against `observer`, by default the server.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import Event
from fedpriv.algorithms.base import LocalUpdate, Silo
from fedpriv.algorithms.batches import SAMPLING, Batches, paper_batch
from fedpriv.algorithms.gradient_method import GRADIENTS_PER_RECORD, GradientMethod
from fedpriv.algorithms.record_gradients import RecordGradients
from fedpriv.algorithms.releases import Release, ReleaseCounts, certified_noise
from fedpriv.algorithms.silo_unit import SiloAlgorithm
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import noise_for_rho
from fedpriv.rounds.plan import Federation, ObservedRelease, Observer, Plan
from fedpriv.rounds.query import Contributions, Query
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.util.work import DeferredWork, Work, WorkList

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import Tensor


@dataclass(frozen=True)
class NoisyGradients(GradientMethod, SiloAlgorithm, ABC):
    """A silo's contribution is the noised mean of its batch."""

    def of_records(self) -> RecordGradients:
        return RecordGradients(self)

    def check(self, plan: Plan) -> None:
        super().check(plan)
        known = self.calibration != "paper" or self.claims is not None
        require(
            known,
            "algo.calibration",
            self.calibration,
            "certified or given: the paper's constants are not known",
        )
        for name, channel in plan.channels.items():
            fixed = self.least_cohort is None or channel.n_summed == channel.n_invited
            allowed = "null: this aggregation's sums cover a fixed number of silos"
            require(fixed, "algo.least_cohort", self.least_cohort, allowed)
            sizes = plan.federation.silo_records
            finest = 1 / max((self.size(name, records) for records in sizes), default=1)
            channel.mechanism.check_encoding(1, channel.encoding, finest)

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        sizes = [(self.size(name, records), records) for records in federation.silo_records] or [
            (1, 1)
        ]
        largest = max(self.batches.most(size, records) / size for size, records in sizes)
        least = min(size for size, _ in sizes)
        return GRADIENTS_PER_RECORD[name] * largest * mechanism.clip + mechanism.noise_bound(
            1, 1 / least
        )

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        if self.calibration == "given":
            return super().calibrated(draft)
        noise = (
            self._claimed_noise(draft)
            if self.calibration == "paper"
            else self._certified_noise(draft)
        )
        return {
            name: channel.mechanism.with_noise(noise[name])
            for name, channel in draft.channels.items()
        }

    def _claimed_noise(self, draft: Plan) -> dict[str, float]:
        """Every kind by its own formula, as if it was alone."""
        claims = self.claims
        assert claims is not None  # methods without constants refuse calibration=paper
        rho = claims.rho_for(self.epsilon, self.delta)
        sizes = draft.federation.silo_records
        return {
            name: noise_for_rho(
                self.counted(name) * max(self.claimed_rho(name, n, 1.0) for n in sizes), rho
            )
            for name in draft.channels
        }

    def _certified_noise(self, draft: Plan) -> dict[str, float]:
        """One budget for all releases that a record meets, exactly spent where batches are not
        amplified."""
        observer = draft.observer(self.observer)
        met: dict[str, ReleaseCounts] = {}
        for round in range(1, self.rounds + 1):
            for name in self.kinds(round):
                for scope, release, _ in self._releases(round, name, observer, draft):
                    met.setdefault(scope, ReleaseCounts())[release.of(self.protected)] += 1
        return certified_noise(
            met.values(),
            {name: self.share(name) for name in draft.channels},
            {name: channel.mechanism for name, channel in draft.channels.items()},
            batches=self.grouped,
            epsilon=self.epsilon,
            delta=self.delta,
        )

    # -- a round -----------------------------------------------------------------------------------

    def queries(self, round: int, plan: Plan) -> tuple[Query, ...]:
        cohort = self.invited(round, plan.federation, plan.streams)
        return tuple(
            plan.query(
                round,
                name=name,
                place=place,
                events=self._events(round, name, plan),
                invited=cohort,
                n_summed=self._n_summed(name, len(cohort), plan),
                enforced=False,
            )
            for place, name in enumerate(self.kinds(round))
        )

    def _n_summed(self, name: str, available: int, plan: Plan) -> int:
        """Every silo's noise is enough for itself, so that a sum over fewer silos is no less
        private."""
        channel = plan.channels[name]
        return channel.n_summed - (channel.n_invited - available)

    def _releases(
        self, round: int, name: str, observer: Observer, plan: Plan
    ) -> Iterator[tuple[str, Release, str]]:
        """Scope and release of each silo in a query as an observer sees it, and why."""
        federation = plan.federation
        channel = plan.channels[name]
        cohort = self.invited(round, federation, plan.streams)
        others = max(0, self._n_summed(name, len(cohort), plan) - 1 - observer.own_shares)
        rounding = channel.mechanism.rounding(channel.encoding, federation.n_parameters)
        sizes = {silo: self.size(name, federation.silo_records[silo]) for silo in cohort}
        for silo in cohort:
            size = sizes[silo]
            moved = GRADIENTS_PER_RECORD[name] * self.batches.moved(size) + rounding * size
            hidden = 1.0
            why = (
                f"the {observer.name} sees every silo's noised message: its own noise counts alone"
            )
            if not observer.sees_messages:
                least = sorted((size / sizes[other]) ** 2 for other in cohort if other != silo)[
                    :others
                ]
                hidden = 1.0 + sum(least)
                why = f"the noise of {1 + len(least)} silos hides the sum"
            yield (
                self.scope(silo, round),
                Release(name, moved, hidden, size, federation.silo_records[silo]),
                why,
            )

    def _events(self, round: int, name: str, plan: Plan) -> tuple[Event, ...]:
        channel = plan.channels[name]
        threat_model = plan.threat_model
        seen = {o.name: list(self._releases(round, name, o, plan)) for o in threat_model.observers}
        rests_on = (
            "the number of a silo's records is public",
            "who takes part when is public and does not depend on data",
        )
        events: list[Event] = []
        for place, (scope, release, _) in enumerate(next(iter(seen.values()))):
            claimed = self._claim(name, release.records, channel.mechanism)

            def see(
                observer: Observer,
                batches: Batches,
                place: int = place,
                claimed: DpEvent | None = claimed,
            ) -> ObservedRelease:
                _, release, why = seen[observer.name][place]
                return ObservedRelease(
                    release.event(channel.mechanism, batches), claimed, (why, *observer.subtracts)
                )

            events += self.charged(plan, channel, see, assumptions=rests_on, scope=scope)
        return tuple(events)

    def _claim(self, name: str, records: int, mechanism: Mechanism) -> DpEvent | None:
        claims = self.claims
        if claims is None or not mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        if not mechanism.noise_multiplier:
            return NonPrivateDpEvent()
        return claims(
            self.overcounted(name) * self.claimed_rho(name, records, mechanism.noise_multiplier)
        )

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        stats = ContributionStats()
        size = self.size(query.name, len(silo.data.x))
        rng = silo.streams.secret(query.stream("noise"), query.round, silo.name)
        noise = query.mechanism.noise_share(
            query.size, 1, rng, sensitivity=1 / size, encoding=query.encoding
        )
        ahead = DeferredWork(partial(self._sums, silo, query, down, size=size, stats=stats))
        return LocalUpdate(blocks=_mean(silo, ahead, size), ahead=ahead, noise=noise, stats=stats)

    def _sums(
        self,
        silo: Silo,
        query: Query,
        down: Mapping[str, np.ndarray],
        *,
        size: int,
        stats: ContributionStats,
    ) -> Work[list[Tensor]]:
        """The sums of clipped gradients at "params", and at "previous" where it is sent down: of
        the same records, with the same dropout."""
        import torch

        from fedpriv.training.batch_sums import BatchSums

        data = silo.data
        clip = query.mechanism.clip
        rows = self.batches.rows(silo, query, size)

        def keys() -> np.ndarray:
            return silo.streams.unit_keys(
                query.stream("dropout"), query.round, silo.name, data.records
            )

        sums = BatchSums(
            clip, silo.model, silo.task, data.x.unsqueeze(1), data.y.unsqueeze(1), keys, stats
        )
        points = (torch.from_numpy(down[name]) for name in ("params", "previous") if name in down)
        return WorkList(
            [sums.asked(point.to(data.x.device, torch.float32), rows) for point in points]
        )


def _mean(silo: Silo, sums: DeferredWork[list[Tensor]], size: int) -> Iterator[Contributions]:
    """The mean clipped gradient, less that at the previous point if there is one."""
    mean, *previous = (total / size for total in sums.result())
    for other in previous:
        mean = mean - other
    yield Contributions(np.array([silo.index]), mean.unsqueeze(0))


@dataclass(frozen=True)
class SampledGradients(NoisyGradients, ABC):
    """Methods that draw a batch a query.

    sampling: without_replacement, poisson (records are then added or removed), or with_replacement,
    as in the paper's programs, which is hardly private.
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
