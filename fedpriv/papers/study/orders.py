"""The orders of methods that the papers report, tested at equal certified epsilons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.papers.study.methods import HU, KATO, LOWY, RECORD, USER
from fedpriv.papers.study.table import LEVEL, StudyRow, epsilons
from fedpriv.reports.compare import holm, paired_test

ORDERS = (
    (KATO, USER, "ULDP-AVG", "ULDP-NAIVE"),
    (KATO, USER, "ULDP-AVG", "ULDP-GROUP"),
    (KATO, USER, "ULDP-AVG", "ULDP-SGD"),
    (KATO, USER, "ULDP-AVG-w", "ULDP-AVG"),
    (HU, RECORD, "CDP-FedAvg", "DP-SGD"),
    (LOWY, RECORD, "SPIDER", "MB-SGD"),
    (LOWY, RECORD, "SPIDER", "Local SGD"),
)
"""Paper, unit, the method that errs less according to the paper, and the other one."""


@dataclass(frozen=True)
class OrderTest:
    """A reported order of two methods at an epsilon.

    paper: that reports it.
    unit: that the epsilon protects.
    epsilon: equal for both.
    first: the method that errs less according to the paper.
    second: the other method.
    errors: mean errors of both.
    p: of the paired t-test over seeds, after Holm's correction over all orders and epsilons of a
        data set.
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
        """Whether the first method errs less, beyond chance."""
        if not self.p < LEVEL:
            return "not resolved"
        return "confirmed" if self.errors[0] < self.errors[1] else "refuted"


def check_orders(rows: Sequence[StudyRow]) -> list[OrderTest]:
    """Test each of `ORDERS` at every epsilon that has both methods."""
    found = {(r.unit, r.epsilon, r.method): r for r in rows}
    pairs = [
        (paper, found[unit, epsilon, first], found[unit, epsilon, second])
        for paper, unit, first, second in ORDERS
        for epsilon in epsilons(rows)
        if (unit, epsilon, first) in found and (unit, epsilon, second) in found
    ]
    raw = [paired_test(one.error_by_seed, other.error_by_seed)[2] for _, one, other in pairs]
    return [
        OrderTest(paper, one.unit, one.epsilon, one.method, other.method, (one.mean, other.mean), p)
        for (paper, one, other), p in zip(pairs, holm(raw))
    ]
