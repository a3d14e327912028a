"""A method whose contributions are records: the sum of all records' clipped gradients, once a
round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedpriv.accountants.events import REPLACE
from fedpriv.algorithms.base import Algorithm
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request, Target
from fedpriv.rounds.contributors import RecordVectors
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

BLOCK = 7


@dataclass(frozen=True)
class RecordSgd(Algorithm):
    """Gradient descent on all records of all silos. Certified: replacement of one record."""

    clip: float = 0.5
    noise_multiplier: float = 30.0
    rate: float = 0.5

    label = "RECORD-SGD"

    contributors = RecordVectors()

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        return (Target("record", REPLACE),)

    def check(self, plan: Plan) -> None:
        plan.mechanism.check_encoding(plan.n_summed, plan.encoding)

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(SumNoise()),)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return LocalJob(self._gradients(silo, down["params"]))

    def _gradients(self, silo: Silo, params: np.ndarray) -> Iterator[Contributions]:
        import torch

        from fedpriv.training.per_record import RecordGradients

        shape = tuple(silo.data.x.shape[1:])
        gradients = RecordGradients(silo.model, silo.task, 1, shape, silo.data.x.dtype)
        theta = torch.from_numpy(params).float()
        for units in torch.split(torch.arange(len(silo.data.x)), BLOCK):
            x = silo.data.x[units].unsqueeze(1)
            y = silo.data.y[units].unsqueeze(1)
            yield Contributions(units.numpy(), gradients(theta, x, y, {}))

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        records = sum(plan.federation.silo_records)
        return state.with_params(state.params - self.rate / records * total.vector)
