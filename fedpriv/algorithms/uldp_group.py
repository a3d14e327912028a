"""ULDP-GROUP-k: record-level DP-SGD in every silo, turned into a user's guarantee by group privacy.

Kato et al., Uldp-FL (PVLDB 2024), Algorithm 2. Symbols: k -> group_size, C -> clip, sigma -> noise_multiplier,
eta_g -> global_lr, eta_l -> local_lr, Q -> local_epochs, B -> batch_size, n_s -> Federation.silo_records.

Privacy: a record lives in one silo, so one record meets that silo's releases only (scopes). A user owns at most k
records over all silos; the accountant converts. The number of records that a silo trains on is public here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.accountants.events import ADD_REMOVE, Event
from fedpriv.aggregation.base import Aggregation
from fedpriv.algorithms.base import Algorithm, Contributions, Federation, Local, Plan, Tally, Update
from fedpriv.algorithms.fedavg import FedAvg
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.data.flags import flags, group_size, keep
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.streams import Streams

LOOKS = ("max", "median")
"""Rules for the group size that look at how many records users own."""


@dataclass(frozen=True)
class UldpGroup(FedAvg):
    """DP-SGD on at most `group_size` records of each user: a number, or max or median of the users' totals."""

    clip: float
    noise_multiplier: float
    group_size: str
    records_per_draw: int = 1
    rule: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.group_size in LOOKS or (self.group_size.isdigit() and int(self.group_size) >= 1)
        require(known, "algo.group_size", self.group_size, "a positive integer, max or median")

    @property
    def label(self) -> str:
        return f"ULDP-GROUP-{self.rule or self.group_size}"

    @property
    def plans_from_allocation(self) -> bool:
        return True

    def check(self, federation: Federation, mechanism: Mechanism, aggregation: Aggregation) -> None:
        mechanism.check_inside_training()

    def settle(self, allocation: Allocation, data: DataSet) -> tuple[Algorithm, Allocation]:
        counts, group = allocation.counts(), data.records_per_draw
        k = group_size(self.group_size if self.group_size in LOOKS else int(self.group_size), counts)
        kept = keep(allocation, flags(counts, k, group), group)
        return replace(self, group_size=str(k), rule=self.group_size, records_per_draw=group), kept

    def _steps(self, records: int) -> tuple[int, float]:
        """DP-SGD steps of a silo in a round, and the rate at which a draw enters each."""
        batches = math.ceil(records / self.batch_size)
        return self.local_epochs * batches, 1 / batches if batches else 0.0

    def plan(
        self, round: int, federation: Federation, mechanism: Mechanism, aggregation: Aggregation, streams: Streams
    ) -> Plan:
        covered, code = self.agree(federation, mechanism, aggregation)
        return Plan(
            round, tuple(range(federation.n_silos)), None, self.events(federation, mechanism), covered, code, streams
        )

    def local_update(self, local: Local, plan: Plan, theta: np.ndarray) -> Update:
        tally = Tally()
        return Update(self._train(local, plan, theta, tally), np.zeros(len(theta)), tally)

    def _train(self, local: Local, plan: Plan, theta: np.ndarray, tally: Tally):
        import torch

        from fedpriv.training.dp_sgd import DpSgd, dp_sgd

        data, mechanism, streams = local.data, local.mechanism, local.streams
        steps, rate = self._steps(len(data.x))
        if not steps:
            return
        draws = len(data.x) // self.records_per_draw
        recipe = DpSgd(steps, rate, mechanism.clip, mechanism.noise_multiplier, self.local_lr, draws * rate)
        delta = dp_sgd(
            local.model,
            torch.from_numpy(theta).to(data.x.device, torch.float32),
            data.x,
            data.y,
            local.task,
            recipe,
            streams.secret("record sample", plan.round, local.name),
            streams.secret("noise", plan.round, local.name),
            streams.torch_seed("dropout", plan.round, local.name),
            self.records_per_draw,
            tally,
        )
        yield Contributions(np.array([local.silo]), delta.double().unsqueeze(0))

    def events(self, federation: Federation, mechanism: Mechanism) -> tuple[Event, ...]:
        """What one round shows to whom: every silo's DP-SGD, the same to everybody, because each silo adds all of its
        noise itself and keeps its batches to itself."""
        from dp_accounting import NonPrivateDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

        base = ("a silo's number of training records is public", "a user keeps at most group_size records")
        per_user = max(1, int(self.group_size) // self.records_per_draw)
        looked = self.rule in LOOKS
        why = (f"FAILS: group_size={self.group_size} is the {self.rule} of private record counts",) if looked else ()
        record = "record" if self.records_per_draw == 1 else f"{self.records_per_draw} records of a user"
        seen = []
        for silo, records in enumerate(federation.silo_records):
            steps, rate = self._steps(records)
            if not steps:
                continue
            event = SelfComposedDpEvent(PoissonSampledDpEvent(rate, mechanism.event()), steps)
            claimed = event if mechanism.clips else None
            user = NonPrivateDpEvent() if looked else event
            scope = f"silo{silo}"
            for observer in ("released model", "server", "silo"):
                seen.append(Event(observer, record, ADD_REMOVE, event, claimed, scope, base[:1]))
                seen.append(Event(observer, "user", ADD_REMOVE, user, claimed, scope, (*base, *why), per_user))
        return tuple(seen)
