"""Huang's utility bound (Theorem 4), and counterexamples to the privacy claim (Theorem 1).

Huang: A federated algorithm for privacy-preserving empirical risk minimization. Symbols as in
`fedpriv.algorithms.dp_erm`; Gamma -> heterogeneity, d -> parameters, |theta^0 - theta*|^2 ->
distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from fedpriv.accountants.events import SERVER
from fedpriv.papers.counterexample import Counterexample

if TYPE_CHECKING:
    from fedpriv.algorithms.dp_erm import DpErm
    from fedpriv.mechanisms.gaussian import Gaussian
    from fedpriv.papers.objective import Optimum
    from fedpriv.rounds.plan import Plan


@dataclass(frozen=True)
class Theorem4:
    """The bound on E[J(theta^T)] - J*, if every silo continues from the average.

    smoothness: L.
    strong_convexity: lambda.
    lipschitz: G, bound on the gradients of all J_j, including the regulariser.
    parameters: d.
    silos: m.
    n_summed: E, silos in a sum.
    local_steps: K.
    steps: T.
    noise: standard deviation of the noise on one gradient; root mean square over silos if they
        differ.
    heterogeneity: Gamma.
    distance: |theta^0 - theta*|^2.
    drift: bound on the square of one step's direction; None is G^2, as in the paper.
    """

    smoothness: float
    strong_convexity: float
    lipschitz: float
    parameters: int
    silos: int
    n_summed: int
    local_steps: int
    steps: int
    noise: float
    heterogeneity: float
    distance: float
    drift: float | None = None

    @property
    def offset(self) -> float:
        """gamma of the rates."""
        return max(8 * self.smoothness / self.strong_convexity - 1, self.local_steps)

    @property
    def b(self) -> float:
        """B: heterogeneity, drift of the local models, noise, and the silos that are left out."""
        drift = self.lipschitz**2 if self.drift is None else self.drift
        left_out = (self.silos - self.n_summed) / (self.silos - 1) if self.silos > 1 else 0.0
        return (
            6 * self.smoothness * self.heterogeneity
            + 8 * (self.local_steps - 1) ** 2 * drift
            + self.parameters * self.noise**2
            + left_out * 4 / self.n_summed * self.local_steps**2 * drift
        )

    @property
    def bound(self) -> float:
        """The proof's result: L/2 v / (gamma + T) with v = max(4 B / lambda^2, (gamma + 1)
        |theta^0 - theta*|^2)."""
        v = max(4 * self.b / self.strong_convexity**2, (self.offset + 1) * self.distance)
        return self.smoothness / 2 * v / (self.offset + self.steps)

    @property
    def printed(self) -> float:
        """Equation (11), slightly looser; inf if K > 8 L / lambda - 1, where its last step
        fails."""
        if self.local_steps > 8 * self.smoothness / self.strong_convexity - 1:
            return math.inf
        inner = self.b / self.strong_convexity + 2 * self.smoothness * self.distance
        return 2 * self.smoothness / (self.strong_convexity * (self.offset + self.steps)) * inner

    def with_noisy_drift(self) -> Theorem4:
        """The bound with noise in the drift of local models too.

        The proof bounds the square of a noisy step by G^2 alone (Lemma 3). Its expectation is up to
        G^2 + d sigma^2.
        """
        return replace(self, drift=self.lipschitz**2 + self.parameters * self.noise**2)


def theorem4(algo: DpErm, plan: Plan, *, start: np.ndarray, optimum: Optimum) -> Theorem4:
    """Theorem 4 for all `algo.rounds` rounds of a run.

    algo: the algorithm.
    plan: of the run; its mechanism clips and adds noise.
    start: first model, (d,).
    optimum: of the run's objective.

    Without noise, steps of rate below 1 / lambda keep |theta| below clip / lambda. So 2 * clip
    bounds the gradients.
    """
    mechanism = cast("Gaussian", plan.mechanism)
    federation = plan.federation
    sizes = [algo.noise_size_of(records, federation) for records in federation.silo_records]
    return Theorem4(
        smoothness=algo.smoothness,
        strong_convexity=algo.strong_convexity,
        lipschitz=2 * mechanism.clip,
        parameters=federation.n_parameters,
        silos=federation.n_silos,
        n_summed=plan.n_summed,
        local_steps=algo.local_steps,
        steps=algo.rounds * algo.local_steps,
        noise=math.sqrt(np.mean([mechanism.share_deviation(1, 1 / size) ** 2 for size in sizes])),
        heterogeneity=optimum.heterogeneity,
        distance=float(((start - optimum.theta) ** 2).sum()),
    )


DELTA = 1e-5
SETTINGS = ((100, 10, 1000, 100), (1000, 50, 1000, 100), (10, 5, 1000, 50))
"""Silos m, silos in a sum E, records of a silo n, steps T."""
REASONS = {
    True: "each user adds only the noise that the average of all would need",
    False: "as printed, silos left out keep models that only their own noise covers",
}
"""Why the claim fails, by whether all silos continue from the average (`broadcast_all`)."""


def counterexamples() -> list[Counterexample]:
    """Theorem 1 for a claimed (1, 1e-5) and K = 1: the server's epsilon with the noise of
    equation (2).

    If all silos continue from the average, the noise of all E silos counts: the best case. As
    printed, silos that are left out continue from their own models, and only a silo's own noise is
    certain to cover it.
    """
    found = []
    for silos, n_summed, records, steps in SETTINGS:
        name = f"Huang, Theorem 1: m = {silos}, E = {n_summed}, n = {records}, T = {steps}"
        for broadcast_all, reason in REASONS.items():
            claimed, certified = server_epsilons(
                silos, n_summed, records=records, steps=steps, broadcast_all=broadcast_all
            )
            attained = attained_epsilon(silos, n_summed, steps) if broadcast_all else None
            note = f"delta = {DELTA:g}; {reason}"
            found.append(Counterexample(name, claimed, certified, note, attained))
    return found


def server_epsilons(
    silos: int, n_summed: int, *, records: int, steps: int, broadcast_all: bool
) -> tuple[float, float]:
    """Claimed and certified epsilon of the server, with the noise for epsilon 1.

    silos: m.
    n_summed: E.
    records: n, of each silo.
    steps: rounds of one step each.
    broadcast_all: whether all silos continue from the average.
    """
    from fedpriv.accountants.ledger import Ledger
    from fedpriv.accountants.pld import Pld
    from fedpriv.aggregation.planner import Planner
    from fedpriv.aggregation.secagg.aggregation import SecAgg
    from fedpriv.aggregation.secagg.threat_model import Setting
    from fedpriv.algorithms.dp_erm import DpErm
    from fedpriv.mechanisms.gaussian import Gaussian
    from fedpriv.rounds.plan import Federation
    from fedpriv.training.optimizers import Sgd
    from fedpriv.util.streams import Streams

    algo = DpErm(
        local_steps=1,
        strong_convexity=0.1,
        smoothness=1.0,
        clip=1.0,
        noise_multiplier=0.0,
        calibration="paper",
        broadcast_all=broadcast_all,
        epsilon=1.0,
        rounds=steps,
        delta=DELTA,
    )

    class FollowedProtocol(SecAgg):
        """The paper's numbers. A server that follows the protocol learns one sum with any."""

        def require_safe(self, setting: Setting) -> None:
            """Any setting will do."""

    aggregation = FollowedProtocol(cohort=n_summed, candidates=min(silos, 7 * n_summed // 5))
    planner = Planner(algo, aggregation, Gaussian(algo.clip, 0.0), Sgd(), Streams(0))
    [query] = algo.queries(1, planner.plan(Federation(silos, silos, 10, (records,) * silos)))
    ledger = Ledger(Pld(DELTA))
    ledger.record((event for event in query.events if event.observer == SERVER), steps)
    [row] = ledger.rows(steps)
    assert row.claimed is not None
    return row.claimed, row.certified


def attained_epsilon(silos: int, n_summed: int, steps: int, *, epsilon: float = 1.0) -> float:
    """The exact epsilon of a record whose clipped gradient can change its sign.

    silos, n_summed: m and E.
    steps: rounds of one step each (K = 1), after which all silos continue from the average.
    epsilon: that the noise is made for.

    A sum that includes the record's silo moves by 2G / n_j. The server knows which sums do; their
    number is binomial.
    """
    from scipy.optimize import brentq
    from scipy.stats import binom, norm

    from fedpriv.mechanisms.calibration import paper_noise

    times = np.arange(1, steps + 1)
    chances = binom.pmf(times, steps, n_summed / silos)
    gaps = 2 / paper_noise(steps, silos, epsilon, DELTA) * np.sqrt(times / n_summed)

    def exceeds(level: float) -> float:
        left = norm.logcdf(gaps / 2 - level / gaps)
        right = level + norm.logcdf(-gaps / 2 - level / gaps)
        return float(chances @ -(np.exp(left) * np.expm1(right - left))) - DELTA

    return float(brentq(exceeds, 0, gaps[-1] ** 2 / 2 + 40 * gaps[-1]))
