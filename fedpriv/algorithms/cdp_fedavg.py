"""CDP-FedAvg: some devices a round take noisy local steps, and their models are averaged under
secure aggregation.

Hu, Guo, Gong: Concentrated differentially private and utility preserving federated learning,
Algorithm 1, and the DP-SGD that it is compared with. Symbols: n -> Federation.n_silos, r -> cohort,
m -> Federation.silo_records, tau -> local_steps, gamma -> batch_size, eta -> local_lr, G -> clip,
sigma -> clip * noise_multiplier (the standard deviation of the noise on a batch's mean gradient), T
-> rounds, C_i -> the rounds that device i takes part in.

Privacy: unit record, adjacency replace (the number of records and the batches' sizes are public); a
record lives on one device, so every device is a scope, charged for the rounds that it takes part
in. What is certified of a round is the better of two bounds, both of Gaussian releases:

  local   every noisy step by itself: at most e = ceil(tau / floor(m / gamma)) of them see the
  record, each a mean
          gradient that moves by 2G / gamma under noise sigma. Holds for every loss and every
          observer.
  sum     the last steps' noise alone: whatever came before, the sum over h silos whose noise the
  observer does not know
          is Gaussian with variance h (eta sigma)^2, and the record moves it by at most Lambda e eta
          2G / gamma. Holds for observers of the sum, and where Lambda, the factor by which later
          steps can spread two models apart, is
          known: 1 for tau = 1, max(1, eta beta - 1)^(tau - 1) for convex beta-smooth losses. beta
              needs a public bound on the features' norm, so the term needs `feature_norm`.

The paper divides the local bound's rho by r instead (Theorem 1): it credits the noise of the other
devices' earlier steps, which their training may contract, and takes 2 eta tau G / gamma for the
change of a device's model, which its training may amplify. Its DP-SGD divides by n, though only r
devices add noise. `fedpriv.papers.hu.counterexamples` has losses for which the claims are false.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.accountants.events import OBSERVERS
from fedpriv.algorithms.base import (
    Algorithm,
    LocalUpdate,
    require_cohort,
    require_plain_sgd,
    require_target,
)
from fedpriv.algorithms.participation import PARTICIPATION
from fedpriv.algorithms.record_targets import (
    bounded,
    record_targets,
    require_gradients_of_records,
    require_records_per_user,
)
from fedpriv.certificates.drift import convex_drift, touches
from fedpriv.certificates.noise import StepNoise, Steps
from fedpriv.certificates.request import ObservedRelease, Request, Target
from fedpriv.data.allocation import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import gaussian_noise, zcdp_noise
from fedpriv.rounds.contributors import Contributors, Silos
from fedpriv.rounds.local_job import Silo
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import Contributions, Query, Total
from fedpriv.rounds.state import State
from fedpriv.training.contribution_stats import ContributionStats
from fedpriv.util.streams import Streams
from fedpriv.util.work import DeferredWork, Work

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class CdpFedAvg(Algorithm):
    """Algorithm 1. A silo's message is the change of its model, which tells as much as the model.

    batch_size: None for floor(m / local_steps), one pass a round.
    cohort: None for all silos.
    participation: uniform, or balanced so that silos differ by at most one in the rounds they take
        part in.
    feature_norm: records are scaled down to this L2 norm before training, a public bound; None
        leaves them.
    calibration: given takes `noise_multiplier`; paper and certified instead the noise for which the
        paper's formula, or the exact certificate of what `observer` sees, gives `epsilon` after
        `rounds` rounds, at `delta`.
    records_per_user: k, most records of a user over all silos that train, others are left out; the
        certified noise is then for a user's `epsilon`, k times a record's. None: nothing is said of
        users, as in the paper.
    """

    local_steps: int
    batch_size: int | None
    local_lr: float
    clip: float
    noise_multiplier: float
    cohort: int | None
    participation: str
    feature_norm: float | None
    calibration: str
    epsilon: float
    observer: str
    rounds: int
    delta: float
    records_per_user: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        require_records_per_user(self.records_per_user)
        size = self.batch_size
        cohort = self.cohort
        norm = self.feature_norm
        require(self.local_steps >= 1, "algo.local_steps", self.local_steps, "a positive integer")
        require(
            size is None or size >= 1,
            "algo.batch_size",
            size,
            "a positive integer, or null for one pass a round",
        )
        require(0 < self.local_lr < math.inf, "algo.local_lr", self.local_lr, "a positive number")
        require_cohort(cohort)
        require(
            self.participation in PARTICIPATION,
            "algo.participation",
            self.participation,
            " or ".join(PARTICIPATION),
        )
        require(
            norm is None or 0 < norm < math.inf,
            "algo.feature_norm",
            norm,
            "a positive bound, or null to scale nothing",
        )
        require_target(self.calibration, self.epsilon)
        require(self.observer in OBSERVERS, "algo.observer", self.observer, ", ".join(OBSERVERS))

    @property
    def label(self) -> str:
        return f"CDP-FedAvg tau={self.local_steps}"

    @property
    def contributors(self) -> Contributors:
        return Silos()

    def targets(self, federation: Federation) -> tuple[Target, ...]:
        return record_targets(self.records_per_user)

    @property
    def queries_need_allocation(self) -> bool:
        return True

    @property
    def rounds_alike(self) -> bool:
        return self.cohort is None

    def check(self, plan: Plan) -> None:
        silos = plan.federation.n_silos
        mechanism = plan.mechanism
        fits = self.cohort is None or self.cohort <= silos
        require(fits, "algo.cohort", self.cohort, f"at most {silos}, the number of silos")
        mechanism.training_noise()  # raises where it has none
        clipped = self.calibration == "given" or mechanism.clips
        require(
            clipped,
            "algo.calibration",
            self.calibration,
            "given, because this mechanism adds no noise",
        )
        mechanism.check_encoding(1, plan.encoding, self.local_lr)
        require_plain_sgd(plan)

    def n_invited(self, federation: Federation) -> int:
        return self.cohort or federation.n_silos

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        return self.local_steps * self.local_lr * (mechanism.clip + mechanism.noise_bound(1))

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        require_gradients_of_records(data)
        allocation = bounded(allocation, self.records_per_user)
        smallest = int(allocation.silo_sizes().min())
        allowed = f"at most {smallest}, the records of the smallest silo"
        require(
            self.batch_size is None or self.batch_size <= smallest,
            "algo.batch_size",
            self.batch_size,
            allowed,
        )
        return allocation

    def _batch(self, records: int) -> int:
        return self.batch_size or max(1, records // self.local_steps)

    def invited(self, round: int, federation: Federation, streams: Streams) -> tuple[int, ...]:
        """The silos of a round."""
        draw = PARTICIPATION[self.participation]
        return draw(round, federation.n_silos, self.n_invited(federation), streams)

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        smallest = min(plan.federation.silo_records)
        return (
            Request(
                self.noise(plan),
                invited=self.invited(round, plan.federation, plan.streams),
                assumptions=self._delta_warning(smallest),
            ),
        )

    def noise(self, plan: Plan) -> StepNoise:
        """A mean gradient over a batch moves by 2G / gamma; a pass meets every record once."""
        drift = convex_drift(
            self.local_steps,
            self.local_lr,
            loss=plan.federation.loss,
            feature_norm=self.feature_norm,
        )
        return StepNoise(self._met, drift)

    def _met(self, records: int) -> Steps:
        size = self._batch(records)
        touched = touches(records, size, self.local_steps)
        return Steps(touched, 2.0, size, 1 / self.local_lr)

    def _delta_warning(self, records: int) -> tuple[str, ...]:
        """Such a delta allows a mechanism that now and then publishes a record."""
        return (
            (f"delta={self.delta:g} is above 1 / {records}^2",) if self.delta > records**-2 else ()
        )

    def claimed_rho(self, records: int, noise_multiplier: float, plan: Plan) -> float:
        """What the paper takes for the rho of one round: Theorem 1, with secure aggregation or
        without.

        The theorem is for whole passes, tau a multiple of m / gamma; the formula is taken as it
        stands for others too.
        """
        batch_noise = noise_multiplier**2 * self._batch(records)
        return (
            2
            * self.local_steps
            / (records * batch_noise * (plan.n_summed if plan.hides_messages else 1))
        )

    def claim(self, view: ObservedRelease) -> DpEvent | None:
        if view.target.unit != "record" or not view.mechanism.clips:
            return None
        from dp_accounting import NonPrivateDpEvent

        noise = view.mechanism.noise_multiplier
        if not noise:
            return NonPrivateDpEvent()
        return self.claim_of(self.claimed_rho(view.records, noise, view.plan))

    def claim_of(self, rho: float) -> DpEvent:
        """The claim of one round, with the paper's conversion to epsilon."""
        from fedpriv.accountants.zcdp import ZcdpClaim

        return ZcdpClaim(rho)

    def paper_noise(self, rho: float) -> float:
        """The noise multiplier for which the paper gives `epsilon`, where it takes `rho` at
        multiplier 1."""
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
            # Gaussian releases: k records are k times as far apart as one.
            k = self.records_per_user or 1
            needed = [
                gaussian_noise(
                    k * self._gap(silo, draft) * math.sqrt(rounds), self.epsilon, self.delta
                )
                for silo, rounds in taken.items()
            ]
        return {UPDATE: draft.mechanism.with_noise(max(needed))}

    def _gap(self, silo: int, draft: Plan) -> float:
        """How far a record of a silo is apart for `observer` after one round, in standard
        deviations at noise multiplier 1."""
        noise = self.noise(draft)
        [target, *_] = self.targets(draft.federation)
        observer = draft.observer(self.observer)
        view = ObservedRelease(Request(noise), draft, self.contributors, target, observer, 1, silo)
        release, _ = noise.bound(view, 0.0)
        return release.gap

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalUpdate:
        # The last step's noise is the message's noise share: it alone is certain to reach the sum
        # as it was drawn.
        rng = silo.streams.secret(query.stream("last noise"), query.round, silo.name)
        share = query.mechanism.noise_share(
            query.size, 1, rng, sensitivity=self.local_lr, encoding=query.encoding
        )
        stats = ContributionStats()
        ahead = DeferredWork(partial(self._training, silo, query, down["params"], stats))
        return LocalUpdate(
            blocks=_contribution(silo, ahead), ahead=ahead, noise=-share, stats=stats
        )

    def _training(
        self, silo: Silo, query: Query, params: np.ndarray, stats: ContributionStats
    ) -> Work[np.ndarray]:
        from fedpriv.training.clipped import clipped_gradients
        from fedpriv.training.noisy_sgd import NoisySgd, noisy_sgd, scaled_to

        data = silo.data
        mechanism = query.mechanism
        streams = silo.streams
        x = data.x if self.feature_norm is None else scaled_to(data.x, self.feature_norm)
        return noisy_sgd(
            clipped_gradients(silo.model, silo.task, mechanism.clip, shape=tuple(x.shape[1:])),
            NoisySgd(self.local_steps, self._batch(len(x)), self.local_lr),
            theta=params,
            x=x,
            y=data.y,
            noise=mechanism.training_noise(),
            noise_rng=streams.secret(query.stream("noise"), query.round, silo.name),
            order=streams.generator(query.stream("batches"), query.round, silo.name),
            dropout_seed=streams.torch_seed(query.stream("dropout"), query.round, silo.name),
            stats=stats,
        )

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(state.params + total.vector / len(total.silos))


def _contribution(silo: Silo, training: DeferredWork[np.ndarray]) -> Iterator[Contributions]:
    """What a silo's training comes to."""
    import torch

    change = torch.from_numpy(training.result()).unsqueeze(0)
    yield Contributions(np.array([silo.index]), change.to(silo.data.x.device))


@dataclass(frozen=True)
class DistributedDpSgd(CdpFedAvg):
    """The paper's baseline: one noisy step a round. Its claim divides by the number of all
    silos.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.local_steps == 1,
            "algo.local_steps",
            self.local_steps,
            "1; algo=cdp_fedavg takes several",
        )

    @property
    def label(self) -> str:
        return "DP-SGD"

    def claimed_rho(self, records: int, noise_multiplier: float, plan: Plan) -> float:
        return 2 / (plan.federation.n_silos * (noise_multiplier * self._batch(records)) ** 2)
