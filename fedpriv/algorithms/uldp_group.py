"""ULDP-GROUP-k: record-level DP-SGD in every silo, converted to a user's guarantee by group
privacy.

Kato et al., Uldp-FL (PVLDB 2024), Algorithm 2. Symbols: k -> Federation.records_per_user, C ->
clip, sigma -> noise_multiplier, eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B ->
batch_size, n_s -> Federation.silo_records.

Privacy: a record is in one silo, so it affects that silo's releases only, and silos are scopes. A
user has at most k training records over all silos. The accountant converts to the user's guarantee
for the worst split of these records over silos. The number of training records of a silo is public.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE
from fedpriv.algorithms.fedavg import WholeSilo
from fedpriv.certificates.noise import DpSgdNoise
from fedpriv.certificates.request import ObservedRelease, Request, Target
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import group_size, select
from fedpriv.errors import require
from fedpriv.rounds.contributors import Silos
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query
from fedpriv.rounds.silo_context import Silo
from fedpriv.training.contributions import ContributionStats

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import nn

    from fedpriv.training.noisy_steps import NoisySteps, Trained

LOOKING_RULES = ("max", "median")
"""Rules that choose the group size from the users' numbers of records, which are private."""
ALL = "all"
"""No bound on a user's records: a record has a certificate, and no user has."""


@dataclass(frozen=True)
class UldpGroup(WholeSilo):
    """DP-SGD on at most `group_size` records of each user.

    With k, users are protected and their single records are not: without one record, another of the
    same user trains. With group_size=all, records are protected and users are not.

    clip: C, bound on one record's gradient.
    noise_multiplier: sigma, noise relative to clip, in every step of every silo.
    group_size: k, a number, or the max or median of the users' numbers of records; all: no bound.
    """

    clip: float
    noise_multiplier: float
    group_size: str

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.group_size.isdigit() and int(self.group_size) >= 1
        known = number or self.group_size in (*LOOKING_RULES, ALL)
        allowed = "a positive integer, all, max or median"
        require(known, "algo.group_size", self.group_size, allowed)

    @property
    def label(self) -> str:
        return f"ULDP-GROUP-{self.group_size}"

    contributors = Silos()

    def check(self, plan: Plan) -> None:
        plan.mechanism.training_noise()  # raises where it has none
        plan.optimizer.require_plain()
        group = plan.federation.records_per_draw
        allowed = "a number: the loss of this data set compares records of a user"
        require(self.group_size != ALL or group == 1, "algo.group_size", ALL, allowed)

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        from fedpriv.training.network_checks import check_record_gradients

        group = data.records_per_draw
        check_record_gradients(network, data.shape, text=data.text, group=group)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        counts = allocation.counts()
        group = data.records_per_draw
        if self.group_size == ALL:
            return allocation
        k = group_size(
            self.group_size if self.group_size in LOOKING_RULES else int(self.group_size), counts
        )
        return select(allocation, k, group, self.group_size)

    def steps(self, records: int) -> tuple[int, float]:
        """The number of a silo's DP-SGD steps in a round, and the sampling rate of each step."""
        batches = math.ceil(records / self.batch_size)
        return self.local_epochs * batches, 1 / batches if batches else 0.0

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        if self.group_size == ALL:
            return (Target("record", ADD_REMOVE),)
        group = federation.records_per_draw
        k = federation.records_per_user
        fails = None
        if self.group_size in LOOKING_RULES:
            fails = f"group_size={k} is the {self.group_size} of private record counts"
        record = "record" if group == 1 else f"{group} records of a user"
        return (
            Target(record, ADD_REMOVE, fails=fails),
            Target(
                "user",
                ADD_REMOVE,
                max(1, (k or 1) // group),
                ("a user keeps at most group_size records",),
                fails,
            ),
        )

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(DpSgdNoise(self.steps)),)

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        if not view.mechanism.clips:
            return None
        event, _ = view.request.noise.event(view)
        return event

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        stats = ContributionStats()
        steps = self._train(silo, query, down["params"], stats)
        return LocalJob(steps, noise=np.zeros(query.size), stats=stats)

    def _train(
        self, silo: Silo, query: Query, params: np.ndarray, stats: ContributionStats
    ) -> Computation:
        change = yield from self.noisy_change(silo, query, params, stats)
        if change is not None:
            yield silo.contribution(change)

    def noisy_change(
        self,
        silo: Silo,
        query: Query,
        params: np.ndarray,
        stats: ContributionStats,
        *,
        noise: float = 1.0,
        proximal: float = 0.0,
        anchor: np.ndarray | float = 0.0,
    ) -> Generator[NoisySteps, Trained, np.ndarray | None]:
        """The change (d,) of a silo's model by its noisy steps from `params`; None: it takes none.

        noise: noise of the steps over that of the mechanism.
        proximal, anchor: see `DpSgd`.
        """
        from fedpriv.training.dp_sgd import DpSgd, dp_sgd

        data = silo.data
        mechanism = query.mechanism
        streams = silo.streams
        records = silo.public_records
        group = silo.plan.federation.records_per_draw
        steps, rate = self.steps(records)
        if not steps:
            return None
        units = data.records[::group]  # a group draws as its first record
        recipe = DpSgd(
            steps=steps,
            sampling_rate=rate,
            clip=mechanism.clip,
            noise_multiplier=mechanism.noise_multiplier * noise,
            lr=self.local_lr,
            expected_batch=records // group * rate,
            proximal=proximal,
        )
        change, _ = yield dp_sgd(
            recipe,
            model=silo.model,
            theta=params,
            x=data.x,
            y=data.y,
            task=silo.task,
            coins=streams.unit_coins(query.stream("record sample"), query.round, silo.name, units),
            noise_rng=streams.secret(query.stream("noise"), query.round, silo.name),
            dropout_keys=streams.unit_keys(query.stream("dropout"), query.round, silo.name, units),
            group=group,
            anchor=anchor,
            stats=stats,
        )
        return change
