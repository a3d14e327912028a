"""Lower bounds of epsilon from guesses about many canaries in one run.

Of m canaries, each has a fair coin of its own that says whether it is there (add/remove), or which
of its two faces it shows (replace); so two neighbouring data sets differ in one coin. Who has seen
the run guesses r of the coins, and v guesses are right. r is fixed beforehand; which canaries are
guessed is not.

Any mechanism (Steinke, Nasr, Jagielski: Privacy auditing with one (1) training run, NeurIPS 2023,
Theorem 5.2; its proof needs fair independent coins and neighbours that differ in one, and so serves
both adjacencies). If the run is (epsilon, delta)-DP, then with B a binomial number of r trials with
success probability 1 / (1 + exp(-epsilon)),

    Pr[at least v right] <= Pr[B >= v] + 2 m delta max_{i = 1..v} Pr[v - i <= B < v] / i.

The bound is the largest epsilon for which the right side is at most 1 - confidence.

A family of curves (Mahloujifar, Melis, Chaudhuri: Auditing f-differential privacy in one run, ICML
2025, for two choices). Let p_t be the probability of exactly t right guesses and g the curve's
least false positive rate for a true positive rate. Take a canary at random. That it is guessed
right and at least i guesses are right has probability R_i = sum_{t >= i} t p_t / m. Turn its coin
over, unseen by the run: the same guesses are then one right guess poorer, and the run's curve says
that this has at least probability g(R_i):

    H_{i-1} = sum_{t >= i-1} (r - t) p_t / m >= g(R_i).

Suppose Pr[at least v right] is 1 - confidence or more. The least R and H follow for i = v, v - 1,
..., 1 from all of that mass at v, and from no more at i - 1 than the inequality asks for. (Whatever
the p_t are, R_i and every S_i = sum_{t >= i} p_t stay above these least ones: m n R_{i-1} = m (i -
1) H_{i-1} + r (S_i + S_{i+1} + ...) with n = r - i + 1, and S = (R + H) m / r.) Where they leave
S_0 > 1 the curve is refuted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedpriv.audit.families import Family, LeastFalse

MOST_EPSILON = 64.0
"""That is searched: no number of canaries that fits into a computer proves as much."""


@dataclass(frozen=True)
class Guesses:
    """Of so many canaries' coins, how many were guessed, and how many of these correctly."""

    canaries: int
    guesses: int
    correct: int
    confidence: float

    def epsilon(self, delta: float) -> float:
        """Least epsilon of any mechanism with these guesses."""
        low = 0.0
        high = MOST_EPSILON
        if self._probability(low, delta) > 1 - self.confidence:
            return 0.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (
                (low, middle)
                if self._probability(middle, delta) > 1 - self.confidence
                else (middle, high)
            )
        return low

    def _probability(self, epsilon: float, delta: float) -> float:
        """The most that so many correct guesses can have under (epsilon, delta)-DP."""
        from scipy.stats import binom

        if not self.correct:
            return 1.0
        fewer = np.arange(self.correct + 1)
        tails = binom.sf(self.correct - fewer - 1, self.guesses, 1 / (1 + np.exp(-epsilon)))
        slope = float(np.max((tails[1:] - tails[0]) / fewer[1:]))
        return float(tails[0]) + 2 * self.canaries * delta * slope

    def refute(self, least_false: LeastFalse) -> bool:
        """Whether so many correct guesses have less probability than 1 - confidence under this
        curve."""
        right = (1 - self.confidence) * self.correct / self.canaries
        wrong = (1 - self.confidence) * (self.guesses - self.correct) / self.canaries
        for fewer in range(self.correct - 1, -1, -1):
            needed = least_false(right)
            if needed <= wrong:
                break  # nothing changes any more
            right += fewer / (self.guesses - fewer) * (needed - wrong)
            wrong = needed
            if right + wrong > self.guesses / self.canaries:
                return True
        return False


@dataclass(frozen=True)
class GuessBound:
    """Lower bounds of epsilon from the same guesses, so that both hold with the same confidence; as
    in `Bound`."""

    epsilon: float
    within: float | None
    guesses: Guesses

    @property
    def audited(self) -> float:
        """The larger one."""
        return max(self.epsilon, self.within or 0.0)

    @property
    def counts(self) -> dict[str, float]:
        """For tables."""
        known = self.guesses
        return {
            "confidence": known.confidence,
            "canaries": known.canaries,
            "guesses": known.guesses,
            "correct_guesses": known.correct,
        }

    @property
    def evidence(self) -> str:
        """In short."""
        known = self.guesses
        return (
            f"{known.correct} of {known.guesses} guesses about {known.canaries} canaries are right"
        )


def guess_bound(
    scores: np.ndarray,
    coins: np.ndarray,
    *,
    n_guesses: int,
    delta: float,
    confidence: float,
    family: Family | None,
) -> GuessBound:
    """From scores (m,), larger where a canary seems to be there, and the coins (m,) bool. The
    highest n_guesses / 2 are guessed to be there, the lowest to be not; n_guesses, even, must not
    depend on either."""
    order = np.argsort(scores, kind="stable")
    half = n_guesses // 2
    correct = int(coins[order[len(order) - half :]].sum() + (~coins[order[:half]]).sum())
    guesses = Guesses(len(coins), 2 * half, correct, confidence)
    within = family.least_epsilon(guesses.refute, delta) if family else None
    return GuessBound(guesses.epsilon(delta), within, guesses)


def best_number(canaries: int, certified: float, *, delta: float, confidence: float) -> int:
    """How many guesses would prove most if scores were Gaussian and epsilon as certified: few are
    surer, many count more. Even, and at least two standard deviations of the number of heads are
    not guessed, since as many canaries are guessed to be there as to be absent."""
    from dp_accounting import get_sigma_gaussian
    from scipy.special import ndtr

    every = int(canaries - 2 * math.sqrt(canaries)) // 2 * 2
    noise = get_sigma_gaussian(certified, delta)
    if not noise:
        return every
    proven: dict[int, float] = {}
    for threshold in np.linspace(0, 0.5 / noise + 4, 40):
        right = ndtr(0.5 / noise - threshold)
        wrong = ndtr(-0.5 / noise - threshold)
        number = min(every, 2 * round((right + wrong) * canaries / 2))
        correct = int(number * right / (right + wrong))
        proven[number] = (
            Guesses(canaries, number, correct, confidence).epsilon(delta) if number else 0.0
        )
    return max(proven, key=lambda number: proven[number])
