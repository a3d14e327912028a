"""Local SGD: each silo takes one noisy step on each of K records, and the final models are
averaged.

A baseline of Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a
trusted server, Section 4, Appendix H. Symbols: K -> local_steps, n -> Federation.silo_records, R ->
rounds, L -> clip, eta -> local_lr.

This is Algorithm 1 of Hu et al. with batches of one record (`fedpriv.algorithms.cdp_fedavg`, which
describes the certificate). The K records of a round are different, so a record is in at most one
step of the round, and moves it by 2L under noise of noise_multiplier * L. The certificate credits
neither the noise of the other steps, which training may forget, nor the random choice of records.

The paper's programs add 8 L^2 K R ln(2 / delta) / (n epsilon)^2 to every step. That is the form of
a theorem about sampled batches, whose conditions K R / n^2 does not meet. One program omits the K
(`fedpriv.papers.lowy.counterexamples`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from fedpriv.algorithms.cdp_fedavg import CdpFedAvg
from fedpriv.algorithms.record_method import RecordMethod
from fedpriv.errors import require
from fedpriv.mechanisms.calibration import noise_for_rho
from fedpriv.rounds.plan import Plan

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class LocalSgd(CdpFedAvg):
    """CdpFedAvg with batches of one record. A run reports its epsilon against `observer`, by
    default the server, since no party needs to be trusted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.batch_size == 1,
            "algo.batch_size",
            self.batch_size,
            "1; algo=cdp_fedavg takes larger ones",
        )

    @property
    def label(self) -> str:
        return f"Local SGD K={self.local_steps}"

    @property
    def headline_observer(self) -> str:
        return self.observer

    idle_with_target: ClassVar[tuple[str, ...]] = RecordMethod.idle_with_target

    def idle_keys(self, plan: Plan) -> Mapping[str, str]:
        # The observer's epsilon is reported first.
        idle = super().idle_keys(plan)
        return {name: reason for name, reason in idle.items() if name != "observer"}

    def check(self, plan: Plan) -> None:
        super().check(plan)
        plan.observer(self.observer)
        sizes = plan.federation.silo_records
        most = min(sizes, default=self.local_steps)
        allowed = f"at most {most}, the records of the smallest silo"
        require(self.local_steps <= most, "algo.local_steps", self.local_steps, allowed)

    def claimed_rho(self, records: int, noise_multiplier: float, plan: Plan) -> float:
        return 2 * self.local_steps / (records * noise_multiplier) ** 2

    def claim_of(self, rho: float) -> DpEvent:
        from fedpriv.accountants.zcdp import MomentsClaim

        return MomentsClaim(rho)

    def paper_noise(self, rho: float) -> float:
        from fedpriv.accountants.zcdp import MomentsClaim

        return noise_for_rho(rho, MomentsClaim.rho_for(self.epsilon, self.delta))
