"""From an attack's successes to lower bounds of epsilon that hold with a stated confidence.

An attack guesses which of two neighbouring worlds it has seen, by a score. Of (epsilon, delta)-DP
follows TPR <= exp(epsilon) FPR + delta in both directions (Kairouz, Oh, Viswanath, ICML 2015). Both
rates are known to within Clopper-Pearson intervals, each at half of the error that is allowed.

A mu-GDP release (Dong, Roth, Su, JRSS B 2022) allows TPR <= Phi(Phi^-1(FPR) + mu). Where a
certificate is that of Gaussian releases, or of sampled ones, the least private curve of that family
that the same two intervals leave gives a larger epsilon from fewer trials (Nasr et al., Tight
auditing of differentially private machine learning, USENIX Security 2023). It refutes a certificate
all the same: the curve that is certified is one of those which are excluded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.audit.rates import Rates

if TYPE_CHECKING:
    from fedpriv.audit.families import Family

TUNING = 0.3
"""Share of the trials on which the threshold is chosen; the others are counted."""


@dataclass(frozen=True)
class Bound:
    """Lower bounds of epsilon from one threshold, so that both hold with the same confidence.

    epsilon: for any mechanism.
    within: for the certificate's family; None where it has none.
    """

    epsilon: float
    within: float | None
    rates: Rates

    @property
    def audited(self) -> float:
        """The larger one."""
        return max(self.epsilon, self.within or 0.0)

    @property
    def counts(self) -> dict[str, float]:
        """For tables."""
        rates = self.rates
        return {
            "confidence": rates.confidence,
            "negatives": rates.negatives,
            "false_positives": rates.false,
            "positives": rates.positives,
            "true_positives": rates.true,
        }

    @property
    def evidence(self) -> str:
        """In short."""
        return f"{self.rates.negatives}+{self.rates.positives}"


def lower_bound(
    absent: np.ndarray,
    present: np.ndarray,
    *,
    delta: float,
    confidence: float,
    family: Family | None,
) -> Bound:
    """From scores (n,) without the canary and (m,) with it, independent trials in the order of
    their draw."""
    split = int(TUNING * len(absent))
    cut = int(TUNING * len(present))
    guess = _best_guess(
        absent[:split], present[:cut], delta=delta, confidence=confidence, family=family
    )
    sign, threshold = guess
    # A negative sign guesses "absent": that is the other direction of the inequality.
    null, other = (absent[split:], present[cut:]) if sign > 0 else (-present[cut:], -absent[split:])
    false, true = (int((scores > threshold).sum()) for scores in (null, other))
    rates = Rates(false, len(null), true, len(other), confidence)
    return Bound(rates.epsilon(delta), family.epsilon(rates, delta) if family else None, rates)


def _best_guess(
    absent: np.ndarray,
    present: np.ndarray,
    *,
    delta: float,
    confidence: float,
    family: Family | None,
) -> tuple[int, float]:
    """The direction and threshold with the largest bound from these trials alone: few hits make
    wide intervals, so that extreme thresholds are not chosen by luck."""
    from scipy.special import betainccinv

    def upper(hits: np.ndarray, trials: int) -> np.ndarray:
        return np.where(
            hits < trials,
            betainccinv(hits + 1, np.maximum(trials - hits, 1), (1 - confidence) / 2),
            1.0,
        )

    best = (-math.inf, 1, 0.0)
    for sign, null, other in ((1, absent, present), (-1, -present, -absent)):
        thresholds = np.unique(np.quantile(np.concatenate([null, other]), np.linspace(0, 1, 65)))
        false, true = ((scores > thresholds[:, None]).sum(axis=1) for scores in (null, other))
        most = upper(false, len(null))
        least = 1 - upper(len(other) - true, len(other))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = (
                family.gaps(most, least) if family else np.log(np.maximum(least - delta, 0) / most)
            )
        place = int(np.argmax(np.nan_to_num(values, nan=-math.inf)))
        if values[place] > best[0]:
            best = float(values[place]), sign, float(thresholds[place])
    return best[1], best[2]
