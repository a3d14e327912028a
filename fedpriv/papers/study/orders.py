"""The orders of methods that the papers report, looked at where all spend the same certified
epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.papers.study.methods import HU, KATO, LOWY, RECORD, USER
from fedpriv.papers.study.table import LEVEL, Row, epsilons
from fedpriv.reports.compare import holm, paired

ORDERS = (
    (KATO, USER, "ULDP-AVG", "ULDP-NAIVE"),
    (KATO, USER, "ULDP-AVG", "ULDP-GROUP"),
    (KATO, USER, "ULDP-AVG", "ULDP-SGD"),
    (KATO, USER, "ULDP-AVG-w", "ULDP-AVG"),
    (HU, RECORD, "CDP-FedAvg", "DP-SGD"),
    (LOWY, RECORD, "SPIDER", "MB-SGD"),
    (LOWY, RECORD, "SPIDER", "Local SGD"),
)
"""Whose, for which unit, and who is said to err less than whom."""


@dataclass(frozen=True)
class Order:
    """Mean errors of two methods at an epsilon.

    p: of the paired t-test over seeds, by Holm over all orders and epsilons of a data set.
    """

    paper: str
    unit: str
    epsilon: float
    first: str
    second: str
    errors: tuple[float, float]
    p: float

    @property
    def verdict(self) -> str:
        """Whether the first one errs less, beyond chance."""
        if not self.p < LEVEL:
            return "not resolved"
        return "confirmed" if self.errors[0] < self.errors[1] else "refuted"


def orders(rows: Sequence[Row]) -> list[Order]:
    """All of `ORDERS` at every epsilon."""
    found = {(r.unit, r.epsilon, r.method): r for r in rows}
    pairs = []
    for paper, unit, first, second in ORDERS:
        for epsilon in epsilons(rows):
            one = found.get((unit, epsilon, first))
            other = found.get((unit, epsilon, second))
            if one is not None and other is not None:
                pairs.append((paper, one, other))
    raw = [paired(one.by_seed, other.by_seed)[2] for _, one, other in pairs]
    return [
        Order(paper, one.unit, one.epsilon, one.method, other.method, (one.mean, other.mean), p)
        for (paper, one, other), p in zip(pairs, holm(raw))
    ]
