"""Lower bounds of epsilon from guesses about many canaries in one run.

Each of m canaries has its own fair coin. The coin decides whether the canary is present
(add/remove), or which of its two versions is present (replace). Two neighbouring data sets thus
differ in one coin. The attacker observes the run and guesses r of the coins; v guesses are correct.
r is fixed beforehand; the attacker chooses which canaries it guesses.

Any mechanism (Steinke, Nasr, Jagielski: Privacy auditing with one (1) training run, NeurIPS 2023,
Theorem 5.2; the proof needs fair independent coins and neighbours that differ in one coin, so it
covers both adjacencies). If the run is (epsilon, delta)-DP, and B is binomial with r trials and
success probability 1 / (1 + exp(-epsilon)), then

    Pr[at least v correct] <= Pr[B >= v] + 2 m delta max_{i = 1..v} Pr[v - i <= B < v] / i.

The bound is the largest epsilon for which the right side is at most 1 - confidence.

A family of curves (Mahloujifar, Melis, Chaudhuri: Auditing f-differential privacy in one run, ICML
2025, for two choices). Let p_t be the probability of exactly t correct guesses, and g the curve's
smallest false positive rate for a true positive rate. Take a random canary. With probability
R_i = sum_{t >= i} t p_t / m it is guessed correctly and at least i guesses are correct. Flip its
coin without changing the run: the same guesses then have one correct guess less. The run's curve
says that this event has at least probability g(R_i):

    H_{i-1} = sum_{t >= i-1} (r - t) p_t / m >= g(R_i).

Suppose Pr[at least v correct] is 1 - confidence or more. The smallest R and H follow for i = v,
v - 1, ..., 1: all of that mass lies at v, and level i - 1 has no more mass than the inequality
demands. (For any p_t, R_i and every S_i = sum_{t >= i} p_t stay above these minima, because
m n R_{i-1} = m (i - 1) H_{i-1} + r (S_i + S_{i+1} + ...) with n = r - i + 1, and
S = (R + H) m / r.) If they imply S_0 > 1, the curve is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from dp_accounting import get_sigma_gaussian
from scipy.special import ndtr
from scipy.stats import binom

from fedpriv.audit.families import Family, GaussianFamily, LeastFalse
from fedpriv.audit.rates import largest_refuted

EPSILON_LIMIT = 64.0
"""Upper end of the search: no number of canaries that fits into memory proves as much."""


@dataclass(frozen=True)
class Guesses:
    """How many coins an attacker guessed, and how many guesses were correct.

    canaries: number of canaries, each with a coin.
    guesses: number of coins that were guessed.
    correct_guesses: number of correct guesses.
    confidence: probability with which the bounds hold.
    """

    canaries: int
    guesses: int
    correct_guesses: int
    confidence: float

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon of any mechanism that allows these guesses."""
        return largest_refuted(
            lambda epsilon: self._probability(epsilon, delta) <= 1 - self.confidence,
            high=EPSILON_LIMIT,
            steps=40,
        )

    def _probability(self, epsilon: float, delta: float) -> float:
        """Largest probability of so many correct guesses under (epsilon, delta)-DP."""
        if not self.correct_guesses:
            return 1.0
        fewer = np.arange(self.correct_guesses + 1)
        tails = binom.sf(self.correct_guesses - fewer - 1, self.guesses, 1 / (1 + np.exp(-epsilon)))
        slope = float(np.max((tails[1:] - tails[0]) / fewer[1:]))
        return float(tails[0]) + 2 * self.canaries * delta * slope

    def refute(self, least_false: LeastFalse) -> bool:
        """Whether so many correct guesses are less likely than 1 - confidence under this curve."""
        right = (1 - self.confidence) * self.correct_guesses / self.canaries
        wrong = (1 - self.confidence) * (self.guesses - self.correct_guesses) / self.canaries
        for fewer in range(self.correct_guesses - 1, -1, -1):
            needed = least_false(right)
            if needed <= wrong:
                break  # the remaining steps change nothing
            right += fewer / (self.guesses - fewer) * (needed - wrong)
            wrong = needed
            if right + wrong > self.guesses / self.canaries:
                return True
        return False

    @property
    def summary(self) -> str:
        """The counts in one sentence."""
        right = f"{self.correct_guesses} of {self.guesses} guesses"
        return f"{right} about {self.canaries} canaries are right"


def best_number(
    canaries: int,
    certified: float,
    *,
    delta: float,
    confidence: float,
    family: Family | None = None,
) -> int:
    """The number of guesses that would prove most if scores were Gaussian and epsilon as certified.

    A few guesses are surer; many guesses count more. The number is even. At least two standard
    deviations of the number of heads are not guessed, because the attacker guesses "present" as
    often as "absent".
    """
    largest = int(canaries - 2 * math.sqrt(canaries)) // 2 * 2
    noise = get_sigma_gaussian(certified, delta)
    if not noise:
        return largest
    # A search in a family that is not Gaussian would take minutes.
    gaussian = family if isinstance(family, GaussianFamily) else None
    proven: dict[int, float] = {}
    for guesses in _likely_guesses(canaries, largest, 1 / noise, confidence):
        within = gaussian.least_epsilon(guesses.refute, delta) if gaussian else 0.0
        proven[guesses.guesses] = max(within, guesses.epsilon(delta))
    return max(proven, key=lambda number: proven[number])


def _likely_guesses(canaries: int, largest: int, mu: float, confidence: float) -> Iterator[Guesses]:
    """Numbers of guesses up to `largest`, each with a number of correct ones that five of six
    audits reach.

    mu: distance of the scores of present and absent canaries, in standard deviations.
    """
    for threshold in np.linspace(0, mu / 2 + 4, 40):
        right = ndtr(mu / 2 - threshold)
        wrong = ndtr(-mu / 2 - threshold)
        number = min(largest, 2 * round((right + wrong) * canaries / 2))
        share = right / (right + wrong)
        correct = int(number * share - math.sqrt(number * share * (1 - share)))
        yield Guesses(canaries, number, max(0, correct), confidence)
