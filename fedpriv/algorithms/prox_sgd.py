"""Noisy distributed SGD with a proximal step at the server, on disjoint batches (one pass) or on
sampled batches.

Lowy, Ghafelebashi, Razaviyayn: Private non-convex federated learning without a trusted server,
Algorithm 6 (`ProxSgd`), and the experiments' baseline (`MinibatchSgd`). Symbols as in
`fedpriv.algorithms.gradient_method`.

- One pass: round r uses the r-th K records of every silo's shuffle, also of silos that are not
  available, so R K <= n. A record is in one batch, and a batch is a scope. Epsilon is that of one
  Gaussian release, for any number of rounds (parallel composition). The paper's s^2 = 16 L^2 ln(1 /
  delta) / (epsilon K)^2 follows from zCDP up to epsilon = 2 ln(1 / delta).
- Sampled batches: every round is a release, so epsilon grows with the rounds. The paper's programs
  take s^2 = 8 L^2 R ln(2 / delta) / (n epsilon)^2 and credit the sampling; see
  `fedpriv.papers.lowy.counterexamples`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.algorithms.gradient_method import GradientMethod
from fedpriv.algorithms.gradient_queries import GRADIENT
from fedpriv.algorithms.sampled_method import SampledMethod
from fedpriv.certificates.sampling import Batches, OnePass
from fedpriv.data.allocate import Allocation
from fedpriv.data.base import DataSet
from fedpriv.errors import require
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.state import State

if TYPE_CHECKING:
    from fedpriv.accountants.zcdp import SmallEpsilonClaim


class OneGradient(GradientMethod):
    """Each round is one step along the mean gradient."""

    def query_names(self, round: int) -> tuple[str, ...]:
        return (GRADIENT,)

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        mean = total.vector / len(total.silos)
        return self.stepped(state, mean, round=query.round, seen=query.round, plan=plan)


@dataclass(frozen=True)
class ProxSgd(OneGradient):
    """Algorithm 6.

    batch_size: K; None: floor(n / rounds), one pass in `rounds` rounds.
    """

    label = "Prox-SGD"

    rounds_alike = False

    @property
    def batches(self) -> Batches:
        return OnePass(self.rounds)

    def size(self, name: str, records: int) -> int:
        return self.batch_size or max(1, records // self.rounds)

    def training_records(self, allocation: Allocation, data: DataSet) -> Allocation:
        kept = super().training_records(allocation, data)
        smallest = int(kept.silo_sizes().min())
        most = smallest // (self.batch_size or 1)
        allowed = f"at most {most}, one pass over the smallest silo's {smallest} records"
        require(self.rounds <= most, "rounds", self.rounds, allowed)
        return kept

    def last_round(self, federation: Federation) -> int | None:
        sizes = federation.silo_records
        return min((n // self.size(GRADIENT, n) for n in sizes), default=None)

    def claimed_rho(self, name: str, records: int, noise_multiplier: float) -> float:
        return 2 / noise_multiplier**2

    def counted(self, name: str) -> float:
        return 1.0


@dataclass(frozen=True)
class MinibatchSgd(SampledMethod, OneGradient):
    """MB-SGD.

    batch_size: K; None: floor(n sqrt(24) / (2 sqrt(rounds))).
    """

    label = "MB-SGD"

    @property
    def rounds_alike(self) -> bool:
        return self.cohort is None and self.least_cohort is None

    @property
    def claims(self) -> type[SmallEpsilonClaim] | None:
        from fedpriv.accountants.zcdp import MomentsClaim

        return MomentsClaim
