"""Which groups differ beyond chance: paired tests over seeds, corrected for how many there are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fedpriv.errors import require
from fedpriv.reports.groups import Group

TEST = "paired t-test over seeds, two-sided, with Holm's correction"
MOST_GROUPS = 8
"""More are compared with one of them only: nobody reads hundreds of pairs, and the correction would
leave nothing."""

ROUNDING = 1e-9


@dataclass(frozen=True)
class Comparison:
    """One group beside another on the seeds that both have.

    difference: mean of one's metric minus the other's.
    p: of the paired t-test, see `paired_p`;
    holm: corrected for all comparisons that have one.
    """

    one: Group
    other: Group
    n: int
    difference: float
    p: float
    holm: float


def compared(groups: Sequence[Group], metric: str, against: str | None = None) -> list[Comparison]:
    """Every pair of groups that has two common seeds; or each with the group of name `against`.

    None when there are more than `MOST_GROUPS` and nothing is said. Raises ConfigError when no
    group has that name.
    """
    names = [group.name for group in groups]
    if against is not None:
        require(against in names, "--against", against, f"one of {'; '.join(names)}")
        reference = groups[names.index(against)]
        pairs = [(group, reference) for group in groups if group is not reference]
    else:
        pairs = list(combinations(groups, 2)) if len(groups) <= MOST_GROUPS else []
    found = []
    for one, other in pairs:
        n, difference, p = paired(one.finals(metric).to_dict(), other.finals(metric).to_dict())
        if n > 1 and math.isfinite(difference):
            found.append((one, other, n, difference, p))
    corrected = holm([p for *_, p in found])
    return [Comparison(*pair, own) for pair, own in zip(found, corrected)]


def paired(one: Mapping[Any, float], other: Mapping[Any, float]) -> tuple[int, float, float]:
    """How many seeds two have in common, the mean of what one's values there are more than the
    other's, and its `paired_p`; NaN where there is none, as for a single seed."""
    both = sorted(one.keys() & other.keys())
    differences = np.array([one[seed] - other[seed] for seed in both])
    tested = len(both) > 1 and bool(np.isfinite(differences).all())
    mean = float(differences.mean()) if both else math.nan
    return len(both), mean, paired_p(differences) if tested else math.nan


def paired_p(differences: np.ndarray) -> float:
    """P-value of the two-sided t-test that the mean of differences (n,) is zero; NaN where all of
    them are the same up to rounding, which is no test."""
    from scipy.stats import ttest_1samp

    if np.ptp(differences) <= ROUNDING * np.abs(differences).max():
        return math.nan
    return float(ttest_1samp(differences, 0.0).pvalue)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (Scandinavian Journal of Statistics 6, 1979), in the given
    order; NaNs stay, and do not count."""
    given = np.asarray(p_values, dtype=float)
    order = np.argsort(given)[: np.isfinite(given).sum()]  # NaNs come last
    adjusted = np.full(len(given), math.nan)
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(np.arange(len(order), 0, -1) * given[order])
    )
    return adjusted.tolist()
