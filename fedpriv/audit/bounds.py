"""Lower bounds of epsilon from the scores of an attack, each with a stated confidence.

An attack guesses from a score whether it has observed a run with the canary or without it.
(epsilon, delta)-DP implies TPR <= exp(epsilon) FPR + delta, and the same with the two cases
exchanged (Kairouz, Oh, Viswanath, ICML 2015). Clopper-Pearson intervals limit both rates; each
interval has half of the allowed error.

A mu-GDP release (Dong, Roth, Su, JRSS B 2022) allows TPR <= Phi(Phi^-1(FPR) + mu). Where the
certificate describes Gaussian releases, sampled or not, the most private curve of that family that
the intervals allow gives a larger epsilon from fewer trials (Nasr et al., Tight auditing of
differentially private machine learning, USENIX Security 2023). Such a bound still refutes the
certificate: the certified curve itself is among those that the rates exclude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedpriv.audit.families import Family
from fedpriv.audit.guessing import Guesses
from fedpriv.audit.rates import Rates, upper_limit

TUNING_SHARE = 0.3
"""Share of the trials that choose the threshold; the others are counted."""
THRESHOLDS = 65
"""Quantiles of the scores that are tried as thresholds."""


Evidence = Rates | Guesses
"""The counts behind a bound."""


@dataclass(frozen=True)
class Bound:
    """Lower bounds of epsilon from the same evidence; both hold together with its confidence.

    epsilon: bound for any mechanism.
    within: bound for the certificate's family of curves; None if the certificate has no family.
    evidence: the counts behind the bounds.
    provable: the largest bound that so many trials or guesses can give, if none is wrong.
    metric: index of the score that a share of the trials has chosen. The other trials are counted.
    """

    epsilon: float
    within: float | None
    evidence: Evidence
    provable: float
    metric: int = 0

    @property
    def audited(self) -> float:
        """The larger of both bounds."""
        return max(self.epsilon, self.within or 0.0)


def lower_bound(
    absent: np.ndarray,
    present: np.ndarray,
    *,
    delta: float,
    confidence: float,
    family: Family | None,
) -> Bound:
    """The bound from scores (n, metrics) without the canary and (m, metrics) with it, or (n,) and
    (m,) of a single metric.

    Trials must be independent and in the order in which they were drawn. The first of them choose
    metric, direction and threshold, and the rest is counted, so that the choice costs no
    confidence.
    """
    absent, present = (scores.reshape(len(scores), -1) for scores in (absent, present))
    split = int(TUNING_SHARE * len(absent))
    cut = int(TUNING_SHARE * len(present))
    choices = [
        _best_threshold(*tuned, delta=delta, confidence=confidence, family=family)
        for tuned in zip(absent[:split].T, present[:cut].T)
    ]
    metric = int(np.argmax([value for value, _, _ in choices]))
    _, sign, threshold = choices[metric]
    absent, present = absent[:, metric], present[:, metric]
    # A negative sign reports absence: the inequality with the two cases exchanged.
    null, other = (absent[split:], present[cut:]) if sign > 0 else (-present[cut:], -absent[split:])
    false, true = (int((scores > threshold).sum()) for scores in (null, other))
    rates = Rates(confidence, len(null), false, len(other), true)
    perfect = replace(rates, false_positives=0, true_positives=len(other))
    return _bound(rates, perfect, delta, family, metric)


def _bound(
    found: Evidence, perfect: Evidence, delta: float, family: Family | None, metric: int = 0
) -> Bound:
    """The bounds that the counts `found` prove, and what `perfect` ones would."""
    within, most = (
        family.least_epsilon(counts.refute, delta) if family else None
        for counts in (found, perfect)
    )
    provable = max(perfect.epsilon(delta), most or 0.0)
    return Bound(found.epsilon(delta), within, found, provable, metric)


def _best_threshold(
    absent: np.ndarray,
    present: np.ndarray,
    *,
    delta: float,
    confidence: float,
    family: Family | None,
) -> tuple[float, int, float]:
    """The largest bound on these trials, and its direction (1 or -1) and threshold.

    Few hits make wide intervals, so that luck does not choose an extreme threshold.
    """
    best = (-math.inf, 1, 0.0)
    for sign, null, other in ((1, absent, present), (-1, -present, -absent)):
        quantiles = np.quantile(np.concatenate([null, other]), np.linspace(0, 1, THRESHOLDS))
        thresholds = np.unique(quantiles)
        false, true = ((scores > thresholds[:, None]).sum(axis=1) for scores in (null, other))
        most = upper_limit(false, len(null), confidence)
        least = 1 - upper_limit(len(other) - true, len(other), confidence)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = (
                family.gaps(most, least) if family else np.log(np.maximum(least - delta, 0) / most)
            )
        index = int(np.argmax(np.nan_to_num(values, nan=-math.inf)))
        if values[index] > best[0]:
            best = float(values[index]), sign, float(thresholds[index])
    return best


def guess_bound(
    scores: np.ndarray,
    coins: np.ndarray,
    *,
    n_guesses: int,
    delta: float,
    confidence: float,
    family: Family | None,
) -> Bound:
    """The bound from scores (m,), larger where a canary seems present, and coins (m,) bool.

    The attacker guesses "present" for the n_guesses / 2 highest scores and "absent" for as many of
    the lowest. n_guesses is even and must depend on neither scores nor coins.
    """
    order = np.argsort(scores, kind="stable")
    half = n_guesses // 2
    correct = int(coins[order[len(order) - half :]].sum() + (~coins[order[:half]]).sum())
    guesses = Guesses(len(coins), 2 * half, correct, confidence)
    return _bound(guesses, replace(guesses, correct_guesses=2 * half), delta, family)
