"""DP-ERM: every silo takes noisy gradient steps on its own model; in each round a random part of
the silos average their models.

Huang: A federated algorithm for privacy-preserving empirical risk minimization, Algorithm 1.
Symbols: m -> Federation.n_silos, n_j -> Federation.silo_records, K -> local_steps, T -> rounds *
local_steps, E -> Query.n_summed (with aggregation=secagg its `cohort`), G -> clip, lambda ->
strong_convexity, L -> smoothness, gamma -> `offset`, eta_t -> `rate`, sigma -> clip *
noise_multiplier / n_j (calibration=paper: / n_(1)), bar-theta_j -> Silo.state["model"].

A round is K steps and one average. J_j is the mean loss of silo j's records plus lambda/2
|theta|^2. A step goes along the mean of the records' clipped gradients plus lambda theta plus
noise. Silos in the sum continue from the average, the others from their own model, as printed. With
`broadcast_all` every silo continues from the average (Theorem 4 needs it). After a round without a
sum, every silo keeps its earlier model.

Privacy: unit record, adjacency replace. The numbers of records are public. A record is in one silo,
so silos are scopes. The certificate of a round is the better of two bounds, both on Gaussian
releases:

- Local: each step is one release. Silo j's mean gradient moves by 2G / n_j under its own noise
  sigma. Everything that leaves the silo is computed from these K outputs a round and from other
  silos' messages. The bound therefore holds for every loss and every observer, however the silos
  synchronise.
- Sum: only the noise of the last steps counts. Let h of the E silos in the sum hide their noise
  from the observer. Given everything before the last steps, the sum is Gaussian. Its variance is
  the sum of (eta sigma)^2 over these silos, where eta is the rate of the round's last step. Where
  sigma is smaller in larger silos, those with the least count. A record moves the sum by at most
  K eta 2G / n_j: step i moves the silo's model by eta_i 2G / n_j, and each later step t shrinks
  that by 1 - eta_t lambda. This holds for losses that are convex and beta-smooth when clipped, and
  eta_t <= 2 / (beta + 2 lambda). With eta_t = 2 / (lambda (t + gamma)) the product of these
  factors with eta_i is at most eta. With K = 1 there is no later step, and the bound holds for
  every loss.

The sum bound assumes that all steps since the silo's model was last public are in this round. That
is true if every silo continues from the average. As printed it is not: a silo that is left out for
k rounds brings k K steps into the sum, under the noise of one step, and the plan of a round does
not know which silos are left out. The bound therefore counts only with `broadcast_all`, or if the
sum covers all silos. It never counts for an observer of single messages. Secure aggregation alone
adds nothing, and silos that happen to be left out are charged like the others.

The paper claims (epsilon, delta) for a sigma that is m times too small (Theorem 1): see
`fedpriv.papers.huang.theory`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import idle_noise
from fedpriv.algorithms.record_method import RecordMethod
from fedpriv.certificates.noise import Drift, StepNoise, Steps
from fedpriv.certificates.request import ObservedRelease, Request
from fedpriv.errors import require, require_positive
from fedpriv.mechanisms.base import Mechanism
from fedpriv.mechanisms.calibration import paper_noise, zcdp_noise
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import UPDATE, Federation, Plan
from fedpriv.rounds.query import PendingState, Query, SiloState, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import ContributionStats

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class DpErm(RecordMethod):
    """Algorithm 1. A silo's message is its model.

    local_steps: K, number of steps between two averages.
    strong_convexity: lambda, weight of the regulariser.
    smoothness: L, smoothness of every silo's J_j with the regulariser. It sets the rates; Theorem 4
        holds only if it is true.
    clip: G. `noise_multiplier` is relative to clip / n_j.
    calibration: paper: equation (2), the same noise for all silos; certified: each silo's own
        `rounds` * K steps are (epsilon, delta)-DP by zCDP.
    broadcast_all: whether all silos continue from the average, not only those in the sum.
    """

    local_steps: int
    strong_convexity: float
    smoothness: float
    broadcast_all: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        convexity = self.strong_convexity
        smooth = self.smoothness
        require_positive("algo", self, "local_steps", "strong_convexity")
        require(
            convexity <= smooth < math.inf,
            "algo.smoothness",
            smooth,
            f"algo.strong_convexity={convexity:g} or more",
        )

    @property
    def label(self) -> str:
        return f"DP-ERM K={self.local_steps}"

    @property
    def offset(self) -> float:
        """gamma. It keeps the rates below 1 / (4 L), and K rates in a row within a factor of 2."""
        return max(8 * self.smoothness / self.strong_convexity - 1, self.local_steps)

    def rate(self, step: int) -> float:
        """eta_t, the learning rate of step t = 1, 2, ..., counted over all rounds."""
        return 2 / (self.strong_convexity * (step + self.offset))

    isolated = False

    def check(self, plan: Plan) -> None:
        mechanism = plan.mechanism
        sizes = plan.federation.silo_records
        mechanism.training_noise()  # raises where it has none
        super().check(plan)
        if sizes:
            least = self.rate(self.rounds * self.local_steps) / max(sizes)
            mechanism.check_encoding(1, plan.encoding, least)

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        all_summed = plan.n_summed == plan.federation.n_silos
        own = {"broadcast_all": "an aggregation that sums over all silos"} if all_summed else {}
        return idle_noise(self.calibration) | own

    def calibrated(self, draft: Plan) -> Mapping[str, Mechanism]:
        steps = self.rounds * self.local_steps
        if self.calibration == "given":
            return super().calibrated(draft)
        if self.calibration == "paper":
            needed = paper_noise(steps, draft.federation.n_silos, self.epsilon, self.delta)
        else:
            # At noise multiplier 1, one record moves a step's mean by two standard deviations (rho
            # = 2), and k records by 2 k.
            needed = zcdp_noise(
                2 * steps * (self.records_per_user or 1) ** 2, self.epsilon, self.delta
            )
        return {UPDATE: draft.mechanism.with_noise(needed)}

    def message_bound(
        self, name: str, mechanism: Mechanism, n_summed: int, federation: Federation
    ) -> float:
        # A step ends between the old model and -(gradient + noise) / lambda. Initial weights are
        # below 1.
        noise = mechanism.noise_bound(1, 1 / fewest(federation))
        return 1 + (mechanism.clip + noise) / self.strong_convexity

    def noise_size_of(self, records: int, federation: Federation) -> int:
        """The number of records that a silo's noise is sized for."""
        return fewest(federation) if self.calibration == "paper" else records

    def _synchronised(self, n_summed: int, silos: int) -> bool:
        """Whether every silo continues from the average after a round."""
        return self.broadcast_all or n_summed == silos

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        federation = plan.federation
        rate = self.rate(round * self.local_steps)
        slowest = min(rate, self.rate(self.rounds * self.local_steps))

        def noisy_steps(records: int) -> Steps:
            noise_size = self.noise_size_of(records, federation)
            moved = 2.0 * noise_size
            grid = noise_size / slowest
            noise = 1 / noise_size  # without the rate: the events of all rounds are equal
            return Steps(self.local_steps, moved, records, grid, rate / noise_size, noise)

        alone = not self._synchronised(plan.n_summed, federation.n_silos)
        return (Request(StepNoise(noisy_steps, self._drift(plan)), stateful=alone),)

    def _drift(self, plan: Plan) -> Drift:
        """The factor is 1 if the sum bound holds, since later steps then spread nothing."""
        federation = plan.federation
        if not self._synchronised(plan.n_summed, federation.n_silos):
            return Drift(math.inf, "silos that are left out carry earlier steps into later sums")
        if self.local_steps == 1:
            return Drift(1.0, "one local step")
        if federation.loss is None:
            return Drift(math.inf, "the clipped loss is not known to be convex")
        smoothness = federation.loss.smoothness(math.inf)
        if not self.rate(1) <= 2 / (smoothness + 2 * self.strong_convexity):
            return Drift(
                math.inf,
                "the steps are too long for the loss, or the features' norm has no public bound",
            )
        return Drift(1.0, "the clipped losses are convex and smooth for any record")

    def claimed(self, view: ObservedRelease, noise_multiplier: float) -> DpEvent | None:
        """Theorem 1 solved for epsilon: equation (2) gives this silo's sigma."""
        from fedpriv.accountants.zcdp import LeadingTermClaim

        federation = view.plan.federation
        if view.target.unit != "record":
            return None
        noise_size = self.noise_size_of(view.records, federation)
        noise = noise_multiplier * fewest(federation) / noise_size
        return LeadingTermClaim(2 * self.local_steps / (federation.n_silos * noise) ** 2)

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        # The last step's noise is the noise share of the message: later steps cannot change it.
        rng = silo.streams.secret(query.stream("last noise"), query.round, silo.name)
        share = self.rate(query.round * self.local_steps) / self._noise_size(silo)
        noise = -query.mechanism.noise_share(
            query.size, 1, rng, sensitivity=share, encoding=query.encoding
        )
        stats = ContributionStats()
        pending = PendingState() if query.asked.stateful else None
        start = silo.state.get("model", down["params"])
        steps = self._train(silo, query, start, last_noise=noise, stats=stats, pending=pending)
        return LocalJob(steps, noise, pending=pending, stats=stats)

    def _noise_size(self, silo: Silo) -> int:
        return self.noise_size_of(len(silo.data.x), silo.plan.federation)

    def _train(
        self,
        silo: Silo,
        query: Query,
        start: np.ndarray,
        *,
        last_noise: np.ndarray,
        stats: ContributionStats,
        pending: PendingState | None,
    ) -> Computation:
        from fedpriv.training.clipped import ClippedGradients
        from fedpriv.training.noisy_steps import NoisySteps

        x = silo.data.x
        mechanism = query.mechanism
        streams = silo.streams
        gradients = ClippedGradients(
            silo.model, silo.task, mechanism.clip, shape=tuple(x.shape[1:]), dtype=x.dtype
        )
        first = (query.round - 1) * self.local_steps + 1
        rates = [self.rate(step) for step in range(first, first + self.local_steps)]
        everything = np.arange(len(x))
        # Later steps cannot change the last one's noise: it is the noise share of the message.
        change, _ = yield NoisySteps(
            gradients=gradients,
            theta=start,
            x=x,
            y=silo.data.y,
            batches=repeat(everything, self.local_steps),
            batch_size=len(x),
            rates=np.array(rates) / len(x),
            noise=mechanism.training_noise(len(x) / self._noise_size(silo)),
            noise_rng=streams.secret(query.stream("noise"), query.round, silo.name),
            noised=self.local_steps - 1,
            keys=silo.dropout_keys(query),
            pull=self.strong_convexity * len(x),
            stats=stats,
        )
        model = start + change
        if pending is not None:
            encoded = (
                query.encoding.nearest(model)
                if streams.system and query.encoding is not None
                else model
            )
            pending["model"] = encoded + last_noise
        yield silo.contribution(model)

    def silo_state(self, silo: Silo, pending: PendingState, summed: bool) -> SiloState:
        # Silos in the sum continue from the average, which the next broadcast contains.
        return {} if summed else pending

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(total.vector / len(total.silos))


def fewest(federation: Federation) -> int:
    """n_(1), number of records of the smallest silo; 1 before the allocation."""
    return min(federation.silo_records, default=1)
