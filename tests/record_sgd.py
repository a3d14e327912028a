"""A method whose contributions are records: the sum of all records' clipped gradients, once a
round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.algorithms.base import LocalUpdate, Silo
from fedpriv.algorithms.record_unit import RecordAlgorithm
from fedpriv.rounds.plan import ObservedRelease, Observer, Plan
from fedpriv.rounds.query import Contributions, Query, Total
from fedpriv.rounds.state import State

BLOCK = 7


@dataclass(frozen=True)
class RecordSgd(RecordAlgorithm):
    """Gradient descent on all records of all silos. Certified: replacement of one record."""

    clip: float = 0.5
    noise_multiplier: float = 30.0
    rate: float = 0.5

    @property
    def label(self) -> str:
        return "RECORD-SGD"

    def check(self, plan: Plan) -> None:
        plan.mechanism.check_encoding(plan.n_summed, plan.encoding)

    def queries(self, round: int, plan: Plan) -> tuple[Query, ...]:
        channel = plan.channel
        moved = 2 + channel.mechanism.rounding(channel.encoding, plan.federation.n_parameters)

        def see(observer: Observer) -> ObservedRelease:
            unknown = 1 if observer.sees_messages else channel.n_summed - observer.own_shares
            return ObservedRelease(
                channel.mechanism.event(sensitivity=moved, shares=unknown / channel.n_summed), None
            )

        events = plan.observed_events(see, unit="record", adjacency=REPLACE)
        return (plan.query(round, events=events),)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        return LocalUpdate(blocks=self._gradients(silo, down["params"]))

    def _gradients(self, silo: Silo, params: np.ndarray) -> Iterator[Contributions]:
        import torch

        from fedpriv.training.per_record import per_group_gradients

        gradients = per_group_gradients(silo.model, silo.task, 1)
        theta = torch.from_numpy(params).float()
        for units in torch.split(torch.arange(len(silo.data.x)), BLOCK):
            x = silo.data.x[units].unsqueeze(1)
            y = silo.data.y[units].unsqueeze(1)
            yield Contributions(units.numpy(), gradients(theta, x, y, {}))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        records = sum(plan.federation.silo_records)
        return state.with_params(state.params - self.rate / records * total.vector)
