"""How often an attack was right and wrong, and what that says with confidence."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Rates:
    """Of n negative and m positive trials, false and true positives, with the confidence that both
    limits hold."""

    false: int
    negatives: int
    true: int
    positives: int
    confidence: float

    @property
    def most_false(self) -> float:
        """Upper limit of the false positive rate."""
        return _upper(self.false, self.negatives, (1 - self.confidence) / 2)

    @property
    def least_true(self) -> float:
        """Lower limit of the true positive rate."""
        return 1 - _upper(self.positives - self.true, self.positives, (1 - self.confidence) / 2)

    def epsilon(self, delta: float) -> float:
        """Least epsilon of any mechanism with these rates."""
        above = self.least_true - delta
        return max(0.0, math.log(above / self.most_false)) if above > 0 else 0.0

    def mu(self) -> float:
        """Least mu of a Gaussian mechanism with these rates."""
        from scipy.special import ndtri

        return max(0.0, float(ndtri(self.least_true) - ndtri(self.most_false)))


def _upper(hits: int, trials: int, error: float) -> float:
    """Clopper-Pearson: the probability that is exceeded with confidence `error` at most, after
    `hits` in `trials`."""
    from scipy.stats import beta

    return 1.0 if hits >= trials else float(beta.isf(error, hits + 1, trials - hits))
