"""Counts, means, quantiles and histograms of a federation's columns, by one private sum.

Each user contributes one vector, whose parts are the user's means over the own records:

- count: 1.
- mean, of x from 0 to 1: ((1 - x)^2, 2x (1 - x), x^2). These add up to 1, so that their L2 norm is
  at most 1. Their sums are the number of users with a value, and two moments.
- histogram: 1 in the bin or the category of x.
- quantiles: column b of a factor R of the matrix A of prefix sums, for x in step b of k. A = L R,
  where L and R are multiples of one lower triangular Toeplitz matrix, the square root of A
  (H. Fichtenberger, M. Henzinger, J. Upadhyay, Constant matters: fine-grained error bound on
  differentially private continual observation, ICML 2023). L times the noisy sums are the numbers
  of users up to each step. Their noise is 1 + ln(k) / pi times that of one count.

Intervals hold with probability 0.95 each, over the noise, for the number of the records at hand.
Users weigh alike, however many records they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from fedpriv.algorithms.base import require_one_of
from fedpriv.algorithms.parts import Count, Histogram, Moments, Part, Quantiles
from fedpriv.algorithms.sums_of_parts import SumsOfParts
from fedpriv.data.table.columns import numbers_and_categories
from fedpriv.data.table.schema import Category
from fedpriv.errors import require
from fedpriv.models import Model
from fedpriv.models.sums import Sums
from fedpriv.rounds.contributors import WEIGHTINGS, Users
from fedpriv.rounds.plan import Plan

STATISTICS = ("count", "mean", "quantiles", "histogram")


@dataclass(frozen=True)
class Statistics(SumsOfParts):
    """Private statistics of the columns of `data=columns`.

    columns: for each column its name, and two numbers, its bounds, or texts, its categories.
    statistics: any of `STATISTICS`; means and quantiles are of numbers.
    quantiles: shares of the users below.
    bins: of a histogram of numbers.
    steps: of the bounds, between which quantiles are interpolated.
    weighting: home (every user has one silo) or uniform (1 / silos).
    """

    columns: list[list[Any]]
    statistics: list[str]
    quantiles: list[float] = field(default_factory=lambda: [0.25, 0.5, 0.75])
    bins: int = 10
    steps: int = 256
    weighting: str = "home"

    label = "Statistics"

    def __post_init__(self) -> None:
        numbers_and_categories(self.columns)
        require_one_of(self, weighting=("home", "uniform"))
        known = set(self.statistics) <= set(STATISTICS) and len(self.statistics) > 0
        require(known, "algo.statistics", self.statistics, f"some of {', '.join(STATISTICS)}")
        inside = len(self.quantiles) > 0 and all(0 < one < 1 for one in self.quantiles)
        require(inside, "algo.quantiles", self.quantiles, "shares between 0 and 1")
        for name in ("bins", "steps"):
            fits = 1 <= getattr(self, name) <= 2**12
            require(fits, f"algo.{name}", getattr(self, name), "a number up to 4096")
        require(bool(self.placed), "algo.statistics", self.statistics, "histogram for categories")

    def parts(self) -> list[tuple[str, int, Part]]:
        found: list[tuple[str, int, Part]] = []
        if "count" in self.statistics:
            found.append(("", 0, Count()))
        for place, column in enumerate(numbers_and_categories(self.columns)):
            known: dict[str, Part] = {}
            if isinstance(column, Category):
                known = {"histogram": Histogram(column.values, categories=True)}
            elif column.range is not None:
                low, high = column.range
                edges = np.linspace(low, high, self.bins + 1)
                names = tuple(f"{a:g} to {b:g}" for a, b in pairwise(edges))
                known = {
                    "mean": Moments(low, high),
                    "quantiles": Quantiles(low, high, self.steps, tuple(self.quantiles)),
                    "histogram": Histogram(names, categories=False),
                }
            asked = (part for name, part in known.items() if name in self.statistics)
            found += [(column.name, place, part) for part in asked]
        return found

    @property
    def contributors(self) -> Users:
        return Users(WEIGHTINGS[self.weighting]())

    def model_of(self, model: Model) -> Model:
        return Sums(self.size)

    def silos(self, plan: Plan) -> int:
        return plan.federation.n_silos if self.weighting == "uniform" else 1
