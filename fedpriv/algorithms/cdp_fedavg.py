"""CDP-FedAvg: in each round some devices take noisy local steps, and secure aggregation averages
their models.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, and the DP-SGD baseline of the paper. Symbols: n -> Federation.n_silos, r -> cohort,
m -> Federation.silo_records, tau -> local_steps, gamma -> batch_size, eta -> local_lr, G -> clip,
sigma -> clip * noise_multiplier (the standard deviation of the noise on a batch's mean gradient), T
-> rounds, C_i -> the rounds that device i takes part in.

Privacy: unit record, adjacency replace. The number of records and the batch sizes are public. A
record is on one device, so each device is a scope, charged for the rounds that it takes part in.
The certificate of a round is the better of two bounds, both on Gaussian releases:

- Local: each noisy step is one release. At most e = ceil(tau / floor(m / gamma)) steps use the
  record. In each, the record moves a mean gradient by 2G / gamma under noise sigma. This bound
  holds for every loss and every observer.
- Sum: only the noise of the last steps counts. Let h be the number of silos whose noise the
  observer does not know. Given everything before the last steps, the sum over these silos is
  Gaussian with variance h (eta sigma)^2, and the record moves it by at most
  Lambda e eta 2G / gamma. Lambda is the factor by which later steps can spread two models apart:
  1 for tau = 1, and max(1, eta beta - 1)^(tau - 1) for convex beta-smooth losses. This bound holds
  for observers of the sum if Lambda is known. beta needs a public bound on the features' norm, so
  the bound needs `feature_norm`.

The paper instead divides the rho of the local bound by r (Theorem 1). It credits the noise of the
other devices' earlier steps, which their training may contract. For the change of a device's model
it takes 2 eta tau G / gamma, which training may amplify. Its DP-SGD divides by n, although only r
devices add noise. `fedpriv.papers.hu.counterexamples` has losses for which the claims are false.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.algorithms.base import idle_noise, require_one_of
from fedpriv.algorithms.participation import PARTICIPATION
from fedpriv.algorithms.record_method import BatchMethod
from fedpriv.certificates.noise import Drift, StepNoise, Steps, convex_drift, touches
from fedpriv.certificates.request import ObservedRelease, Request
from fedpriv.errors import require, require_positive
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import gaussian_noise, zcdp_noise
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import ContributionStats
from fedpriv.util.streams import Streams

if TYPE_CHECKING:
    from dp_accounting import DpEvent

MARKS_JUMP = (
    "one record's earlier steps may change whether any other's gradient is within the bound"
)
"""Why nothing bounds how far a sum with the marks of a last step moves."""


@dataclass(frozen=True)
class CdpFedAvg(BatchMethod):
    """Algorithm 1. A silo's message is the change of its model.

    local_steps: tau, number of noisy steps of a silo in a round.
    batch_size: gamma; None: floor(m / local_steps), one pass a round.
    local_lr: eta, learning rate of a step.
    clip: G. `noise_multiplier` is that of a batch's mean gradient.
    participation: uniform, or balanced: the silos' numbers of rounds differ by at most one.
    feature_norm: public L2 bound to which records are scaled down before training; None: no
        scaling.
    observer: observer whose certificate is calibrated.
    """

    local_steps: int
    local_lr: float
    participation: str
    feature_norm: float | None
    observer: str

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("algo", self, "local_steps", "local_lr")
        require_one_of(self, participation=PARTICIPATION, observer=OBSERVERS)
        if self.feature_norm is not None:
            require_positive("algo", self, "feature_norm")

    @property
    def label(self) -> str:
        return f"CDP-FedAvg tau={self.local_steps}"

    @property
    def rounds_alike(self) -> bool:
        return self.cohort is None

    isolated = False

    def check(self, plan: Plan) -> None:
        mechanism = plan.mechanism
        mechanism.training_noise()  # raises where it has none
        super().check(plan)
        if self.calibration == "certified":
            plan.observer(self.observer)  # raises where the aggregation has none
        mechanism.check_encoding(1, plan.encoding, self.local_lr)

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        # A delta above 1 / records^2 is warned about, so it has an effect.
        idle = {k: why for k, why in idle_noise(self.calibration).items() if k != "delta"}
        if self.calibration != "certified":
            idle["observer"] = f"algo.calibration={self.calibration}"
        if self.n_invited(plan.federation) == plan.federation.n_silos:
            idle["participation"] = f"algo.cohort={self.cohort}"
        return idle

    # The target is that of the headline observer.
    idle_with_target: ClassVar[tuple[str, ...]] = (*BatchMethod.idle_with_target, "observer")

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        return self.local_steps * self.local_lr * (mechanism.clip + mechanism.noise_bound(1))

    def batch(self, records: int) -> int:
        """gamma, in a silo of `records` records."""
        return self.batch_size or max(1, records // self.local_steps)

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos of a round."""
        draw = PARTICIPATION[self.participation]
        return draw(round, federation.n_silos, self.n_invited(federation), streams)

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        # Such a delta permits a mechanism that occasionally publishes a record.
        smallest = min(plan.federation.silo_records, default=1)
        warning = f"delta={self.delta:g} is above 1 / {smallest}^2"
        return (
            Request(
                self.noise(plan),
                invited=self.invited(round, plan.federation, plan.streams),
                assumptions=(warning,) if self.delta > smallest**-2 else (),
            ),
        )

    def noise(self, plan: Plan) -> StepNoise:
        """The noise of a silo's steps. A record moves a batch's mean gradient by 2G / gamma, and a
        pass uses every record at most once."""
        drift = convex_drift(
            self.local_steps,
            self.local_lr,
            loss=plan.federation.loss,
            feature_norm=self.feature_norm,
        )
        if self.local_steps > 1 and plan.mechanism.marks:
            drift = Drift(math.inf, MARKS_JUMP)
        return StepNoise(self._noisy_steps, drift, marks=True)

    def _noisy_steps(self, records: int) -> Steps:
        size = self.batch(records)
        touched = touches(records, size, self.local_steps)
        rate = self.local_lr
        return Steps(touched, 2.0, size, 1 / rate, rate, rate)

    def claimed_rho(self, records: int, noise_multiplier: float, plan: Plan) -> float:
        """The rho of one round in the paper: Theorem 1, with or without secure aggregation.

        The theorem covers whole passes, with tau a multiple of m / gamma. Here its formula also
        serves other tau.
        """
        batch_noise = noise_multiplier**2 * self.batch(records)
        return (
            2
            * self.local_steps
            / (records * batch_noise * (plan.n_summed if plan.hides_messages else 1))
        )

    def claimed(self, view: ObservedRelease, noise_multiplier: float) -> DpEvent | None:
        if view.target.unit != "record":
            return None
        return self.claim_of(self.claimed_rho(view.records, noise_multiplier, view.plan))

    def claim_of(self, rho: float) -> DpEvent:
        """The claimed event of one round, with the paper's conversion to epsilon."""
        from fedpriv.accountants.zcdp import ZcdpClaim

        return ZcdpClaim(rho)

    def paper_noise(self, rho: float) -> float:
        """The noise multiplier for which the paper's formula gives `epsilon`.

        rho: the paper's rho at noise multiplier 1.
        """
        return zcdp_noise(rho, self.epsilon, self.delta)

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        if self.calibration == "given":
            return super().calibrated(draft)
        federation = draft.federation
        taken = Counter(
            silo
            for t in range(self.rounds)
            for silo in self.invited(t + 1, federation, draft.streams)
        )
        if self.calibration == "paper":
            needed = [
                self.paper_noise(
                    rounds * self.claimed_rho(federation.silo_records[silo], 1.0, draft)
                )
                for silo, rounds in taken.items()
            ]
        else:
            # Gaussian releases: k records move a release k times as far as one record.
            k = self.records_per_user or 1
            noise = self.noise(draft)
            needed = [
                gaussian_noise(
                    k * self._gap(silo, draft, noise) * math.sqrt(rounds), self.epsilon, self.delta
                )
                for silo, rounds in taken.items()
            ]
        return {UPDATE: draft.mechanism.with_noise(max(needed))}

    def _gap(self, silo: int, draft: Plan, noise: StepNoise) -> float:
        """The distance of neighbours for `observer` after one round, in standard deviations at
        noise multiplier 1."""
        [target, *_] = self.targets(draft.federation)
        observer = draft.observer(self.observer)
        view = ObservedRelease(Request(noise), draft, self.contributors, target, observer, 1, silo)
        release, _ = noise.bound(view, 0.0)
        return release.gap

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        # The last step's noise is the noise share of the message: later steps cannot change it.
        rng = silo.streams.secret(query.stream("last noise"), query.round, silo.name)
        share = query.mechanism.noise_share(
            query.size, 1, rng, sensitivity=self.local_lr, encoding=query.encoding
        )
        stats = ContributionStats()
        return LocalJob(self._train(silo, query, down["params"], stats), -share, stats=stats)

    def _train(
        self, silo: Silo, query: Query, params: np.ndarray, stats: ContributionStats
    ) -> Computation:
        import torch

        from fedpriv.training.clipped import ClippedGradients
        from fedpriv.training.noisy_sgd import partition_batches, scaled_to
        from fedpriv.training.noisy_steps import NoisySteps

        data = silo.data
        mechanism = query.mechanism
        streams = silo.streams
        x = data.x if self.feature_norm is None else scaled_to(data.x, self.feature_norm)
        shape = tuple(x.shape[1:])
        size = self.batch(len(x))
        rate = self.local_lr / size
        order = streams.generator(query.stream("batches"), query.round, silo.name)
        gradients = ClippedGradients(
            silo.model, silo.task, mechanism.limit, shape=shape, dtype=x.dtype
        )
        # The last step's noise is the noise share of the message, apart from what it hides.
        moved, last = yield NoisySteps(
            gradients=gradients,
            theta=params,
            x=x,
            y=data.y,
            batches=partition_batches(len(x), size, self.local_steps, order=order),
            batch_size=size,
            rates=np.full(self.local_steps, rate),
            noise=mechanism.training_noise(size),
            noise_rng=streams.secret(query.stream("noise"), query.round, silo.name),
            noised=self.local_steps - 1,
            keys=silo.dropout_keys(query),
            stats=stats,
        )
        # The last step's marks have the last step's noise, as its gradients do.
        change = mechanism.marked(torch.from_numpy(moved), rate * last.within, rate * last.clipped)
        yield silo.contribution(change.numpy())

    def units_in_sum(self, query: Query, total: Total, plan: Plan) -> float:
        return self.local_lr * super().units_in_sum(query, total, plan)

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(state.params + total.vector / len(total.silos))


@dataclass(frozen=True)
class DistributedDpSgd(CdpFedAvg):
    """The paper's baseline: one noisy step a round. Its claim divides by the number of all
    silos."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.local_steps == 1,
            "algo.local_steps",
            self.local_steps,
            "1; algo=cdp_fedavg takes several",
        )

    label = "DP-SGD"

    def claimed_rho(self, records: int, noise_multiplier: float, plan: Plan) -> float:
        return 2 / (plan.federation.n_silos * (noise_multiplier * self.batch(records)) ** 2)
