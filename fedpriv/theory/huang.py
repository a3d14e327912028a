"""What Huang's paper proves and claims: the utility bound of Theorem 4, and where the privacy of Theorem 1 fails.

Huang: A federated algorithm for privacy-preserving empirical risk minimization. Symbols as in
`fedpriv.algorithms.dp_erm`; Gamma -> heterogeneity, d -> parameters, |theta^0 - theta*|^2 -> distance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.theory.counterexample import Counterexample

if TYPE_CHECKING:
    from fedpriv.simulation import Simulation
    from fedpriv.theory.objective import Optimum


@dataclass(frozen=True)
class Theorem4:
    """The bound on E[J(theta^T)] - J*, for silos that all go on from the average.

    lipschitz: G, bound on the gradients of all J_j, the regulariser included. noise: standard deviation of the noise on
    one gradient; root mean square over silos if they differ. drift: bound on the square of one step's direction, G^2 in
    the paper.
    """

    smoothness: float
    strong_convexity: float
    lipschitz: float
    parameters: int
    silos: int
    covered: int
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
        """B: heterogeneity, drift of the local models, noise, and the part of the silos that is left out."""
        drift = self.lipschitz**2 if self.drift is None else self.drift
        left_out = (self.silos - self.covered) / (self.silos - 1) if self.silos > 1 else 0.0
        return (
            6 * self.smoothness * self.heterogeneity
            + 8 * (self.local_steps - 1) ** 2 * drift
            + self.parameters * self.noise**2
            + left_out * 4 / self.covered * self.local_steps**2 * drift
        )

    @property
    def bound(self) -> float:
        """What the proof gives: L/2 v / (gamma + T) with v = max(4 B / lambda^2, (gamma + 1) |theta^0 - theta*|^2)."""
        v = max(4 * self.b / self.strong_convexity**2, (self.offset + 1) * self.distance)
        return self.smoothness / 2 * v / (self.offset + self.steps)

    @property
    def printed(self) -> float:
        """Equation (11), a little looser; inf where its last step fails, which needs K <= 8 L / lambda - 1."""
        if self.local_steps > 8 * self.smoothness / self.strong_convexity - 1:
            return math.inf
        inner = self.b / self.strong_convexity + 2 * self.smoothness * self.distance
        return 2 * self.smoothness / (self.strong_convexity * (self.offset + self.steps)) * inner

    def with_noisy_drift(self) -> Theorem4:
        """The same with the noise in the local models' drift too: the proof bounds a noisy step by G^2 alone (Lemma 3),
        where its square is up to G^2 + d sigma^2 in expectation."""
        return replace(self, drift=self.lipschitz**2 + self.parameters * self.noise**2)


def theorem4(simulation: Simulation, optimum: Optimum) -> Theorem4:
    """Theorem 4 for a prepared run of algo=dp_erm with a clipping, noising mechanism.

    Without noise a step of rate below 1 / lambda keeps |theta| below clip / lambda, so 2 * clip bounds the gradients.
    """
    algo, exp, federation = simulation.algo, simulation.experiment, simulation.federation
    sizes = [algo.noised_for(records) for records in federation.silo_records]
    return Theorem4(
        algo.smoothness,
        algo.strong_convexity,
        2 * exp.mechanism.clip,
        federation.n_parameters,
        federation.n_silos,
        exp.aggregation.min_cohort(federation.n_silos),
        algo.local_steps,
        exp.options.rounds * algo.local_steps,
        math.sqrt(np.mean([exp.mechanism.share_deviation(1, 1 / size) ** 2 for size in sizes])),
        optimum.heterogeneity,
        float(((simulation.theta0 - optimum.theta) ** 2).sum()),
    )


DELTA = 1e-5
SETTINGS = ((100, 10, 1000, 100), (1000, 50, 1000, 100), (10, 5, 1000, 50))
"""Silos m, silos in a sum E, records of a silo n, steps T."""
WHY = {
    True: "the claim counts on m^2 times a silo's noise, a sum holds E",
    False: "as printed, silos left out keep models that only their own noise covers",
}
"""By whether everybody goes on from the average."""


def counterexamples() -> list[Counterexample]:
    """Theorem 1, claiming (1, 1e-5): what the server learns under the noise of equation (2), with K = 1.

    If everybody goes on from the average, the noise of all E silos counts, which is the best case. As printed, silos
    that are left out go on from their own models, and only a silo's own noise is certain to cover it.
    """
    found = []
    for silos, covered, records, steps in SETTINGS:
        name = f"Huang, Theorem 1: m = {silos}, E = {covered}, n = {records}, T = {steps}"
        for everybody, why in WHY.items():
            claimed, certified = server_epsilons(silos, covered, records, steps, everybody)
            attained = attained_epsilon(silos, covered, steps) if everybody else None
            found.append(Counterexample(name, claimed, certified, f"delta = {DELTA:g}; {why}", attained))
    return found


def server_epsilons(
    silos: int, covered: int, records: int, steps: int, broadcast_all: bool
) -> tuple[float | None, float]:
    """Claimed and certified epsilon of the server after `steps` rounds of one step, with the noise for epsilon 1."""
    from fedpriv.accountants.ledger import Ledger
    from fedpriv.accountants.pld import Pld
    from fedpriv.aggregation.secagg import SecAgg
    from fedpriv.algorithms.base import Federation
    from fedpriv.algorithms.dp_erm import DpErm
    from fedpriv.mechanisms.gaussian import Gaussian
    from fedpriv.streams import Streams

    algo = DpErm(1, 0.1, 1.0, 1.0, 0.0, "paper", broadcast_all, 1.0, steps, DELTA, fewest=records)
    federation, streams = Federation(silos, silos, 10, (records,) * silos), Streams(0)
    aggregation = SecAgg(cohort=covered, candidates=min(silos, 7 * covered // 5))
    mechanism = algo.calibrated(Gaussian(algo.clip, 0.0), federation, aggregation, streams)
    ledger = Ledger(Pld(DELTA))
    events = algo.plan(1, federation, mechanism, aggregation, streams).events
    ledger.record((event for event in events if event.observer == "server"), steps)
    [row] = ledger.rows(steps)
    return row.claimed, row.certified


def attained_epsilon(silos: int, covered: int, steps: int, epsilon: float = 1.0) -> float:
    """The exact epsilon of a record whose clipped gradient can turn round, with the noise for `epsilon`, K = 1 and
    everybody going on from the average.

    A sum with the record's silo moves by all of 2G / n_j; the server knows which sums these are, binomially many.
    """
    from scipy.optimize import brentq
    from scipy.stats import binom, norm

    from fedpriv.mechanisms.huang import paper_noise

    times = np.arange(1, steps + 1)
    chances = binom.pmf(times, steps, covered / silos)
    gaps = 2 / paper_noise(steps, silos, epsilon, DELTA) * np.sqrt(times / covered)

    def exceeds(level: float) -> float:
        left, right = norm.logcdf(gaps / 2 - level / gaps), level + norm.logcdf(-gaps / 2 - level / gaps)
        return float(chances @ -(np.exp(left) * np.expm1(right - left))) - DELTA

    return float(brentq(exceeds, 0, gaps[-1] ** 2 / 2 + 40 * gaps[-1]))
