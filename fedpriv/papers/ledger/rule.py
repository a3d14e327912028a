"""The rule by which a replication decides: docs/papers/rule.md says it in words.

Methods are paired by seed. Each comparison at each place has a t-interval and a two-sided p-value
of the mean difference. P-values are corrected by Holm's method over all comparisons and places of
one entry and question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedpriv.papers.ledger.entries import Comparison
from fedpriv.reports.compare import holm, paired_p

LEVEL = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Difference:
    """The first method minus the second at one place, paired by seed.

    place: its name.
    seeds: number of common seeds.
    first, second: means over these seeds.
    mean: of the differences.
    low, high: ends of the 95 % interval of the mean.
    p: two-sided; NaN if all differences are equal.
    holm: corrected p.
    detectable: true difference that the test finds with a chance of 80 %, at the measured spread.
    """

    place: str
    seeds: int
    first: float
    second: float
    mean: float
    low: float
    high: float
    p: float
    detectable: float
    holm: float = math.nan


def difference(place: str, first: pd.Series, second: pd.Series) -> Difference:
    """Compare two methods, with values by seed, on the seeds that both have; at least two."""
    from scipy.stats import t

    own, other = first.dropna().align(second.dropna(), join="inner")
    apart = own - other
    n = len(apart)
    error = float(apart.std()) / math.sqrt(n)
    reach = float(t.ppf(1 - LEVEL / 2, n - 1)) * error
    mean = float(apart.mean())
    return Difference(
        place=place,
        seeds=n,
        first=float(own.mean()),
        second=float(other.mean()),
        mean=mean,
        low=mean - reach,
        high=mean + reach,
        p=paired_p(apart.to_numpy()) if apart.any() else math.nan,
        detectable=reach + float(t.ppf(POWER, n - 1)) * error,
    )


def differences(
    comparison: Comparison, first: pd.DataFrame, second: pd.DataFrame
) -> list[Difference]:
    """One for each place that the comparison names; with quantifier "mean" one for all of them.

    first, second: a method's values, with a row for each seed and a column for each place.
    """
    named = [place for place in map(str, first) if _is_named(place, comparison.places)]
    if comparison.quantifier == "mean":
        means = (one[named].mean(axis=1, skipna=False) for one in (first, second))
        return [difference(f"mean of {len(named)} places", *means)]
    return [difference(place, first[place], second[place]) for place in named]


def _is_named(place: str, words: Sequence[str]) -> bool:
    """Whether each of the words is one of the place's settings, or the end of one from `.` or `=`
    on: `allocator.n_users=100` is `n_users=100` and not `n_users=10`."""
    own = [f".{setting}" for setting in place.split(", ")]
    return all(any(one.endswith((f".{word}", f"={word}")) for one in own) for word in words)


def corrected(found: Sequence[Sequence[Difference]]) -> list[list[Difference]]:
    """The same differences with p-values corrected over all of them."""
    every = iter(holm([one.p for row in found for one in row]))
    return [[replace(one, holm=next(every)) for one in row] for row in found]


def side(comparison: Comparison, one: Difference) -> str:
    """What a place says about the claim: "for", "against", "equal" or "open"."""
    sign = 1 if comparison.says == "higher" else -1
    if comparison.quantifier == "close":
        worst, best = sorted((sign * one.low, sign * one.high))
        within = worst >= -comparison.margin
        return "for" if within else "against" if best < -comparison.margin else "open"
    if one.holm < LEVEL:
        return "for" if sign * one.mean > 0 else "against"
    small = comparison.margin > 0 and max(abs(one.low), abs(one.high)) <= comparison.margin
    return "equal" if small or (one.low == one.high == 0) else "open"


def answer(comparison: Comparison, found: Sequence[Difference]) -> str:
    """Reproduced, reversed, tie or not resolved, from the sides of all places."""
    sides = Counter(side(comparison, one) for one in found)
    most = comparison.quantifier == "most"
    if sides["for"] > len(found) / 2 if most else sides["for"] == len(found):
        return "reproduced"
    failed = sides["against"] + sides["equal"]
    if not failed or (most and failed < len(found) / 2):
        return "not resolved"
    against = sides["against"] >= sides["equal"] if most else sides["against"]
    return "reversed" if against else "tie"


def together(answers: Sequence[str]) -> str:
    """The answer of several claims of one entry: that of the first kind that occurs."""
    kinds = ("reversed", "tie", "beyond our certificate", "not run", "unknown setting")
    return next((kind for kind in (*kinds, "not resolved") if kind in answers), "reproduced")
