"""Confidence limits of an attack's true and false positive rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betainccinv


@dataclass(frozen=True)
class Rates:
    """Counts of an attack's correct and wrong positives, with their confidence limits.

    confidence: probability with which both limits hold together.
    negatives: trials without the canary.
    false_positives: trials without the canary in which the attack reported it.
    positives: trials with the canary.
    true_positives: trials with the canary in which the attack reported it.
    """

    confidence: float
    negatives: int
    false_positives: int
    positives: int
    true_positives: int

    @property
    def most_false(self) -> float:
        """Upper limit of the false positive rate."""
        return float(upper_limit(self.false_positives, self.negatives, self.confidence))

    @property
    def least_true(self) -> float:
        """Lower limit of the true positive rate."""
        missed = self.positives - self.true_positives
        return 1 - float(upper_limit(missed, self.positives, self.confidence))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon of any mechanism that allows these rates."""
        above = self.least_true - delta
        return max(0.0, math.log(above / self.most_false)) if above > 0 else 0.0

    def refute(self, least_false: Callable[[float], float]) -> bool:
        """Whether a privacy curve excludes these rates. least_false: the smallest false positive
        rate that it allows for a true positive rate."""
        return self.most_false < least_false(self.least_true)

    @property
    def summary(self) -> str:
        """Number of trials, as the terminal table shows it."""
        return f"{self.negatives}+{self.positives}"


def upper_limit(hits: Any, trials: int, confidence: float) -> np.ndarray:
    """Clopper-Pearson upper limits of rates, (n,), from (n,) hits.

    Each limit has half of the error probability, so that two of them hold together with
    `confidence`.
    """
    error = (1 - confidence) / 2
    limit = betainccinv(hits + 1, np.maximum(trials - hits, 1), error)
    return np.where(hits < trials, limit, 1.0)


def largest_refuted(
    refuted: Callable[[float], bool], *, low: float = 0.0, high: float, steps: int
) -> float:
    """The largest value in [low, high] that `refuted` excludes, never above the exact one.

    A value below a refuted one is refuted too. Returns `low` if nothing is refuted.
    """
    if not refuted(low):
        return low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
