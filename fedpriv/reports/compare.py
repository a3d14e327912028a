"""Paired tests over seeds: which groups of runs differ beyond chance?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.stats import ttest_1samp

from fedpriv.errors import require
from fedpriv.reports.groups import Group

TEST = "paired t-test over seeds, two-sided, with Holm's correction"
MAX_PAIRED_GROUPS = 8
"""With more groups, each is compared with one named group only: nobody reads hundreds of pairs,
and the correction would leave no power."""

ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """Two groups on the seeds that both have.

    one: the first group.
    other: the second group.
    n: number of common seeds.
    difference: mean over these seeds of the first group's metric minus the second's.
    p: p-value of the paired t-test; see `paired_p`.
    holm: p after Holm's correction for all comparisons that have one.
    """

    one: Group
    other: Group
    n: int
    difference: float
    p: float
    holm: float


def compare_groups(
    groups: Sequence[Group], metric: str, against: str | None = None
) -> list[Comparison]:
    """Compare every pair of groups with at least two common seeds.

    metric: name of the metric, after the last round.
    against: name of the only group that the others are compared with. Without it, more than
        `MAX_PAIRED_GROUPS` groups are not compared.

    Raises ConfigError when no group has the name `against`.
    """
    names = [group.name for group in groups]
    if against is not None:
        require(against in names, "--against", against, f"one of {'; '.join(names)}")
        reference = groups[names.index(against)]
        pairs = [(group, reference) for group in groups if group is not reference]
    else:
        pairs = list(combinations(groups, 2)) if len(groups) <= MAX_PAIRED_GROUPS else []
    tests = [
        (one, other, *paired_test(one.finals(metric).to_dict(), other.finals(metric).to_dict()))
        for one, other in pairs
    ]
    tests = [test for test in tests if test[2] > 1 and math.isfinite(test[3])]
    corrected = holm([p for *_, p in tests])
    return [Comparison(*test, own) for test, own in zip(tests, corrected)]


def paired_test(one: Mapping[Any, float], other: Mapping[Any, float]) -> tuple[int, float, float]:
    """Compare two mappings from seed to value on their common seeds.

    Returns the number of common seeds, the mean difference (`one` minus `other`), and its p-value.
    The latter two are NaN where they do not exist: the difference without a common seed, the
    p-value with a single one.
    """
    both = sorted(one.keys() & other.keys())
    differences = np.array([one[seed] - other[seed] for seed in both])
    tested = len(both) > 1 and bool(np.isfinite(differences).all())
    mean = float(differences.mean()) if both else math.nan
    return len(both), mean, paired_p(differences) if tested else math.nan


def paired_p(differences: np.ndarray) -> float:
    """P-value of the two-sided t-test that differences (n,) have mean zero.

    NaN if all differences are equal up to rounding: then there is nothing to test.
    """
    if np.ptp(differences) <= ROUNDING * np.abs(differences).max():
        return math.nan
    return float(ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the given order. NaNs stay and are not counted.

    S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of
    Statistics 6, 1979.
    """
    given = np.asarray(p_values, dtype=float)
    order = np.argsort(given)[: np.isfinite(given).sum()]  # NaNs come last
    adjusted = np.full(len(given), math.nan)
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(np.arange(len(order), 0, -1) * given[order])
    )
    return adjusted.tolist()
