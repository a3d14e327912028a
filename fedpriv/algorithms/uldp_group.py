"""ULDP-GROUP-k: record-level DP-SGD in every silo, turned into a user's guarantee by group privacy.

Kato et al., Uldp-FL (PVLDB 2024), Algorithm 2. Symbols: k -> Federation.records_per_user, C ->
clip, sigma -> noise_multiplier, eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B ->
batch_size, n_s -> Federation.silo_records.

Privacy: a record lives in one silo, so one record meets that silo's releases only (scopes). A user
owns at most k records over all silos; the accountant converts, for the worst way of splitting them.
The number of records that a silo trains on is public here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.algorithms.base import LocalUpdate, Silo, require_plain_sgd
from fedpriv.algorithms.fedavg import WholeSilo
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import flags, group_size, select
from fedpriv.errors import require
from fedpriv.rounds.plan import ObservedRelease, Observer, Plan
from fedpriv.rounds.query import Contributions, Query
from fedpriv.training.contribution_stats import ContributionStats

LOOKING_RULES = ("max", "median")
"""Rules for the group size that look at how many records users own."""


@dataclass(frozen=True)
class UldpGroup(WholeSilo):
    """DP-SGD on at most `group_size` records of each user: a number, or max or median of the users'
    totals."""

    clip: float
    noise_multiplier: float
    group_size: str

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.group_size in LOOKING_RULES or (
            self.group_size.isdigit() and int(self.group_size) >= 1
        )
        require(known, "algo.group_size", self.group_size, "a positive integer, max or median")

    @property
    def label(self) -> str:
        return f"ULDP-GROUP-{self.group_size}"

    @property
    def queries_need_allocation(self) -> bool:
        return True

    def check(self, plan: Plan) -> None:
        plan.mechanism.training_noise()  # raises where it has none
        require_plain_sgd(plan)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        counts = allocation.counts()
        group = data.records_per_draw
        k = group_size(
            self.group_size if self.group_size in LOOKING_RULES else int(self.group_size), counts
        )
        return select(allocation, flags(counts, k, group), k, group)

    def _steps(self, records: int) -> tuple[int, float]:
        """DP-SGD steps of a silo in a round, and the rate at which a draw enters each."""
        batches = math.ceil(records / self.batch_size)
        return self.local_epochs * batches, 1 / batches if batches else 0.0

    def queries(self, round: int, plan: Plan) -> tuple[Query, ...]:
        events = [
            event
            for silo, records in enumerate(plan.federation.silo_records)
            for event in self._events(silo, records, plan)
        ]
        return (plan.query(round, events=tuple(events), enforced=False),)

    def _events(self, silo: int, records: int, plan: Plan) -> Iterator[Event]:
        """What one round shows of a silo: its DP-SGD, the same to everybody, because each silo adds
        all of its noise itself and keeps its batches to itself."""
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        mechanism = plan.mechanism
        federation = plan.federation
        steps, rate = self._steps(records)
        if not steps:
            return
        event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, mechanism.event()), steps)
        claimed = event if mechanism.clips else None
        looked = self.group_size in LOOKING_RULES
        k = federation.records_per_user
        assert k is not None  # `training_records` bounds it
        why = (
            (f"FAILS: group_size={k} is the {self.group_size} of private record counts",)
            if looked
            else ()
        )

        def of_record(observer: Observer) -> ObservedRelease:
            return ObservedRelease(event, claimed)

        def of_user(observer: Observer) -> ObservedRelease:
            return ObservedRelease(NonPrivateDpEvent() if looked else event, claimed, why)

        group = federation.records_per_draw
        rests_on = ("a silo's number of training records is public",)
        per_record = plan.observed_events(
            of_record,
            unit="record" if group == 1 else f"{group} records of a user",
            adjacency=ADD_REMOVE,
            assumptions=rests_on,
            scope=f"silo{silo}",
        )
        per_user = plan.observed_events(
            of_user,
            unit="user",
            adjacency=ADD_REMOVE,
            assumptions=(*rests_on, "a user keeps at most group_size records"),
            scope=f"silo{silo}",
            group_size=max(1, k // group),
        )
        for pair in zip(per_record, per_user):
            yield from pair

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        stats = ContributionStats()
        blocks = self._train(silo, query, down["params"], stats)
        return LocalUpdate(blocks=blocks, noise=np.zeros(query.size), stats=stats)

    def _train(
        self, silo: Silo, query: Query, params: np.ndarray, stats: ContributionStats
    ) -> Iterator[Contributions]:
        import torch

        from fedpriv.training.dp_sgd import DpSgd, dp_sgd

        data = silo.data
        mechanism = query.mechanism
        streams = silo.streams
        federation = silo.plan.federation
        records = federation.silo_records[silo.index]
        group = federation.records_per_draw
        steps, rate = self._steps(records)
        if not steps:
            return
        units = data.records[::group]  # a group draws as its first record
        recipe = DpSgd(
            steps=steps,
            sampling_rate=rate,
            clip=mechanism.clip,
            noise_multiplier=mechanism.noise_multiplier,
            lr=self.local_lr,
            expected_batch=records // group * rate,
        )
        delta = dp_sgd(
            recipe,
            model=silo.model,
            theta=torch.from_numpy(params).to(data.x.device, torch.float32),
            x=data.x,
            y=data.y,
            task=silo.task,
            coins=streams.unit_coins(query.stream("record sample"), query.round, silo.name, units),
            noise_rng=streams.secret(query.stream("noise"), query.round, silo.name),
            dropout_keys=streams.unit_keys(query.stream("dropout"), query.round, silo.name, units),
            group=group,
            stats=stats,
        )
        yield Contributions(np.array([silo.index]), delta.unsqueeze(0))
