"""The methods of `fedpriv.algorithms.gradient_method` with one contribution for each record, as the
shuffle model needs.

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Algorithms 7 (Prox-SGD), 8 and 9 (Prox-SVRG), 10 (SPIDER). Symbols: M K -> `_records`, P_vec's g ->
mechanism.levels, b n -> Binomial.trials.

The framework clips each record's vector, and all silos of a sum share its noise. The server divides
by the number of records in the batches, so silos of different sizes count by their batches. The
difference of two clipped gradients is halved in the message, so that all contributions have the
bound L.

- noise_multiplier: standard deviation of the whole noise on a sum of gradients, relative to clip.
- difference_noise: noise on a sum of differences, relative to that on a sum of gradients.

Privacy: unit record, adjacency replace (add/remove with Poisson batches), one contribution a query.
Silos or batches are scopes. An observer of sums faces the noise of all silos, and a silo that of
all others. The shuffler sees the ones of each silo and faces that silo's noise only. The choice of
silos is public and hides nothing, although the paper credits it.

The paper splits the budget over query names. It composes the releases of one name by advanced
composition (its Theorem D.1; Dwork, Roth, Theorem 3.20), and multiplies the budget by N / (2 M) for
the choice of silos. `fedpriv.mechanisms.lowy` has the noise that follows. For other noise, the
claim is the budget that would lead to this noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.gradient_method import GradientMethod
from fedpriv.algorithms.gradient_queries import GRADIENTS_PER_RECORD
from fedpriv.algorithms.proximal import Regulariser
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import ObservedRelease, Release, Request, Target
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.lowy import ShuffleBudget
from fedpriv.rounds.contributors import RecordVectors
from fedpriv.rounds.local_job import LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from torch import nn

    from fedpriv.accountants.base import Accountant


@dataclass(frozen=True)
class RecordGradients(Algorithm):
    """A gradient method whose contributors are records.

    method: decides everything but who adds the noise.
    """

    method: GradientMethod

    @property
    def label(self) -> str:
        return f"SDP {self.method.label}"

    # -- before the first round --------------------------------------------------------------------

    contributors = RecordVectors()

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        return self.method.targets(federation)

    @property
    def rounds_alike(self) -> bool:
        return self.method.rounds_alike

    def last_round(self, federation: Federation) -> int | None:
        return self.method.last_round(federation)

    @property
    def headline_observer(self) -> str:
        return self.method.headline_observer

    def check(self, plan: Plan) -> None:
        method = self.method
        method.check_settings(plan)
        allowed = "null: all silos of a sum share its noise, and so their number is fixed"
        require(method.least_cohort is None, "algo.least_cohort", method.least_cohort, allowed)
        once = not method.batches.repeats
        require(
            once, "algo.sampling", "with_replacement", "another: a record contributes once to a sum"
        )
        for parameters in plan.query_parameters.values():
            parameters.mechanism.check_encoding(parameters.n_summed, parameters.encoding)

    def check_network(self, network: nn.Module, data: DataSet) -> None:
        self.method.check_network(network, data)

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        # The claim of given noise depends on delta.
        idle = self.method.idle_keys(plan)
        return {name: reason for name, reason in idle.items() if name != "delta"}

    idle_with_target: ClassVar[tuple[str, ...]] = GradientMethod.idle_with_target

    def for_target(self, epsilon: float) -> Self:
        return replace(self, method=self.method.for_target(epsilon))

    @property
    def own_target(self) -> tuple[Accountant, int] | None:
        return self.method.own_target

    def n_invited(self, federation: Federation) -> int:
        return self.method.n_invited(federation)

    def mechanisms(self, mechanism: Mechanism) -> Mapping[str, Mechanism]:
        mechanisms = self.method.mechanisms(mechanism)
        return {
            name: one.with_noise(one.noise_multiplier / GRADIENTS_PER_RECORD[name])
            for name, one in mechanisms.items()
        }

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        return self.method.training_records(allocation, data)

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        if self.method.calibration == "given":
            return super().calibrated(draft)
        return (
            self._claimed_noise(draft)
            if self.method.calibration == "paper"
            else self._certified_noise(draft)
        )

    def _certified_noise(self, draft: Plan) -> dict[str, Mechanism]:
        """The certified noise: one budget for all releases that a record is in. It is first spent
        on Gaussian releases; counts then get noise of the same cost."""
        method = self.method
        names = draft.query_parameters
        moved = method.batches.moved(1)

        def release(view: ObservedRelease) -> Release:
            size = view.request.batch_size(view.records)
            return Release(view.request.name, moved, 1.0, size, view.records)

        gaussian = method.certified_noise(
            draft,
            self.requests,
            self.contributors,
            release,
            dict.fromkeys(names, Gaussian(1.0, 0.0)),
        )
        observer = draft.observer(method.observer)
        size = draft.federation.n_parameters
        found = {}
        for name, parameters in names.items():
            n_summed = parameters.n_summed
            silos = 1 if observer.sees_messages else max(1, n_summed - observer.own_shares)
            found[name] = parameters.mechanism.counting().with_gaussian_cost(
                gaussian[name] / moved, size, sensitivity=moved, shares=silos / n_summed
            )
        return found

    def _claimed_noise(self, draft: Plan) -> dict[str, Mechanism]:
        """The noise with the paper's constants, for the smallest possible number of
        contributions."""
        size = draft.federation.n_parameters
        method = self.method
        sizes = sorted(draft.federation.silo_records)[: self.n_invited(draft.federation)]
        found = {}
        for name, parameters in draft.query_parameters.items():
            records = sum(method.size(name, one) for one in sizes)
            levels, bits = self._budget(name, draft).noise(records, size, method.epsilon)
            found[name] = parameters.mechanism.counting().with_bits(levels, bits)
        return found

    def _budget(self, name: str, plan: Plan) -> ShuffleBudget:
        """The paper's budget for one release of query `name`."""
        federation = plan.federation
        chosen = self.n_invited(federation) / federation.n_silos
        calls = max(1, math.ceil(self.method.counted(name)))
        return ShuffleBudget(len(plan.query_parameters), calls, chosen, self.method.delta)

    # -- a round -----------------------------------------------------------------------------------

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        asked = self.method.asked(round, plan)
        return tuple(Request(SumNoise(), name=name, **drawn) for name, drawn in asked)

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        from fedpriv.accountants.zcdp import AdvancedClaim

        if view.observer.sees_messages or view.observer.own_shares:
            return None
        method = self.method
        plan = view.plan
        name = view.request.name
        noise = view.mechanism.noise_multiplier
        claimed = self._budget(name, plan).epsilon(noise, plan.federation.n_parameters)
        if claimed is None:
            return None
        return AdvancedClaim(claimed**2 * method.overcounted(name) / method.counted(name))

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return LocalJob(self._vectors(silo, query, down))

    def _vectors(
        self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]
    ) -> Iterator[Contributions]:
        """The gradients of the batch at "params". If the broadcast contains "previous": half of the
        difference of the clipped gradients at both points, with the same dropout for each
        record."""
        import torch

        from fedpriv.mechanisms.base import clipped_rows
        from fedpriv.training.network_checks import refuse_shared_state
        from fedpriv.training.per_record import MAX_NUMBERS_IN_MEMORY, RecordGradients
        from fedpriv.training.record_dropout import record_dropout

        refuse_shared_state(silo.model)
        data = silo.data
        device = silo.data.x.device
        points = {
            name: torch.tensor(vector, dtype=torch.float32, device=device)
            for name, vector in down.items()
        }
        batch = self.method.batches.rows(
            silo, query, self.method.size(query.name, silo.public_records)
        )
        x = data.x.unsqueeze(1)
        y = data.y.unsqueeze(1)
        dropout = record_dropout(silo.model, x.shape[1:], x.dtype, x.device)
        shape = tuple(data.x.shape[1:])
        gradients = RecordGradients(dropout.model, silo.task, 1, shape, data.x.dtype)
        keys = silo.streams.unit_keys(
            query.stream("dropout"), query.round, silo.name, data.records[batch]
        )
        at_once = max(1, MAX_NUMBERS_IN_MEMORY // query.size)
        for start in range(0, len(batch), at_once):
            rows = batch[start : start + at_once]
            masks = dropout.masks(keys[start : start + at_once], 0)
            index = torch.from_numpy(rows).to(device)
            at = {
                name: gradients(point, x[index], y[index], masks) for name, point in points.items()
            }
            if "previous" in at:
                new, old = (
                    clipped_rows(at[name], query.mechanism.clip)[0]
                    for name in ("params", "previous")
                )
                yield Contributions(rows, (new - old) / 2)
            else:
                yield Contributions(rows, at["params"])

    # -- delegated to the method -------------------------------------------------------------------

    @property
    def regulariser(self) -> Regulariser | None:
        return self.method.regulariser

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return self.method.init(params, plan)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return self.method.broadcast(state, query)

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        sizes = plan.federation.silo_records
        records = sum(self.method.size(query.name, sizes[silo]) for silo in query.invited)
        # Rescale to a sum of means, since the method divides by their number.
        means = total.vector * (GRADIENTS_PER_RECORD[query.name] * len(total.silos) / records)
        return self.method.global_update(state, query, replace(total, vector=means), plan)

    def output(self, state: State) -> np.ndarray:
        return self.method.output(state)


@singledispatch
def record_form(algo: Algorithm) -> Algorithm | None:
    """The same method with one contribution for each record; None if there is no such form. Other
    families of methods register their form."""
    return algo if algo.contributors.one_silo else None


@record_form.register
def _(algo: GradientMethod) -> Algorithm | None:
    return RecordGradients(algo) if algo.shuffles else None
