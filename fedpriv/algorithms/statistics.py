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

With m parts each is multiplied by 1 / sqrt(m). A mean of vectors is no longer than the longest, so
that no user's vector is longer than 1 and clipping changes none. The certificate rests on the
framework's bound. Everything after the sum is post-processing.

Intervals hold with probability 0.95 each, over the noise, for the number of the records at hand.
Users weigh alike, however many records they have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fedpriv.algorithms.base import Algorithm, require_one_of
from fedpriv.certificates.noise import SumNoise
from fedpriv.certificates.request import Request
from fedpriv.data.table.columns import numbers_and_categories
from fedpriv.data.table.schema import Category
from fedpriv.errors import require
from fedpriv.mechanisms.strategy import square_root
from fedpriv.models import Model
from fedpriv.models.sums import Sums
from fedpriv.rounds.contributors import HomeWeighting, UniformWeighting, Users
from fedpriv.rounds.local_job import Computation, LocalJob
from fedpriv.rounds.plan import Federation, Plan
from fedpriv.rounds.query import Query, Total
from fedpriv.rounds.silo_context import Silo
from fedpriv.rounds.state import State
from fedpriv.training.contributions import Contributions

NORMAL = 1.959963984540054
"""Standard deviations beyond which a Gaussian is with probability 0.05."""
BLOCK = 2**22
"""Numbers of a block of records' vectors."""
ROUNDING = 1e-12
"""By how much vectors are shorter than their bound, so that rounding clips none."""
WEIGHTINGS = {"home": HomeWeighting, "uniform": UniformWeighting}


class Estimate(NamedTuple):
    """A released number with its interval.

    statistic: its name.
    of: bin, category or share of users; empty: the whole column.
    value: estimate.
    low, high: ends of the interval.
    """

    statistic: str
    of: str
    value: float
    low: float
    high: float


class Part(ABC):
    """A part of a user's vector.

    size: number of coordinates.
    """

    size: int

    @abstractmethod
    def vectors(self, x: np.ndarray) -> np.ndarray:
        """Vectors (n, size) of L2 norm at most 1 for values (n,), none of them NaN."""

    @abstractmethod
    def estimates(self, sums: np.ndarray, deviation: float) -> Iterator[Estimate]:
        """What noisy sums (size,) say, with this deviation of the noise."""


class Count(Part):
    """The number of users."""

    size = 1

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.ones((len(x), 1))

    def estimates(self, sums: np.ndarray, deviation: float) -> Iterator[Estimate]:
        yield _counted("count", "", float(sums[0]), deviation)


@dataclass(frozen=True)
class Moments(Part):
    """Mean and deviation of a column of numbers.

    low, high: bounds of the column.
    """

    low: float
    high: float
    size = 3

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.stack([(1 - x) ** 2, 2 * x * (1 - x), x * x], axis=1)

    def estimates(self, sums: np.ndarray, deviation: float) -> Iterator[Estimate]:
        first, second = sums[1] / 2 + sums[2], sums[2]
        number, noise = float(sums.sum()), NORMAL * deviation
        if number <= 2 * noise:  # too few users for the noise: nothing is known
            yield self._scaled("mean", 0.5, 0.0, 1.0)
            spread = self.high - self.low
            yield Estimate("deviation", "", spread / 4, 0.0, spread / 2)
            return
        mean = first / number
        # All m for which first - m * number, whose noise is known, is not far from 0 (Fieller).
        a, b = number**2 - 3 * noise**2, 2 * first * number - 3 * noise**2
        root = math.sqrt(max(0.0, b * b - 4 * a * (first**2 - 1.25 * noise**2)))
        yield self._scaled("mean", mean, (b - root) / (2 * a), (b + root) / (2 * a))
        square = second / number
        slope = np.array([0, 0.5, 1]) - mean, np.array([0, 0, 1]) - square
        error = noise / number * float(np.linalg.norm(slope[1] - 2 * mean * slope[0]))
        variance = np.array([0.0, -error, error]) + square - mean**2
        spread = (self.high - self.low) * np.sqrt(np.clip(variance, 0.0, 0.25))
        yield Estimate("deviation", "", *map(float, spread))

    def _scaled(self, name: str, *positions: float) -> Estimate:
        inside = np.clip(positions, 0.0, 1.0) * (self.high - self.low) + self.low
        return Estimate(name, "", *map(float, inside))


@dataclass(frozen=True)
class Histogram(Part):
    """Numbers of users by bin.

    names: of the bins; values are the bins' numbers, or from 0 to 1.
    categories: whether values are numbers of bins.
    """

    names: tuple[str, ...]
    categories: bool

    @property
    def size(self) -> int:  # type: ignore[override]
        return len(self.names)

    def vectors(self, x: np.ndarray) -> np.ndarray:
        places = x.astype(np.int64) if self.categories else _steps(x, self.size)
        return np.asarray(np.eye(self.size)[places])

    def estimates(self, sums: np.ndarray, deviation: float) -> Iterator[Estimate]:
        for name, value in zip(self.names, sums):
            yield _counted("histogram", name, float(value), deviation)


@dataclass(frozen=True)
class Quantiles(Part):
    """Quantiles of a column of numbers.

    low, high: bounds of the column.
    size: number of steps.
    shares: of the users below.
    """

    low: float
    high: float
    size: int
    shares: tuple[float, ...]

    @cached_property
    def _factor(self) -> np.ndarray:
        """R, (size, size)."""
        coefficients = np.array(square_root(self.size).coefficients)
        age = np.subtract.outer(np.arange(self.size), np.arange(self.size))
        return np.where(age >= 0, coefficients[age], 0.0)

    def vectors(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._factor.T[_steps(x, self.size)])

    def estimates(self, sums: np.ndarray, deviation: float) -> Iterator[Estimate]:
        from scipy.linalg import solve_triangular
        from scipy.optimize import isotonic_regression

        # A = L R, so that L = A R^-1 = (R^-T A^T)^T.
        prefix = np.tri(self.size)
        left = solve_triangular(self._factor, prefix.T, lower=True, trans="T").T
        below = left @ sums
        rising = np.maximum(isotonic_regression(below).x, 0.0)
        edges = np.linspace(self.low, self.high, self.size + 1)
        for share in self.shares:
            at = share * rising[-1]
            value = float(np.interp(at, np.append(0.0, rising), edges))
            noise = NORMAL * deviation * np.linalg.norm(left - share * left[-1], axis=1)
            beyond = below - share * below[-1]
            # A step stays unless its ends are surely on one side of the quantile.
            surely_below, surely_above = beyond < -noise, np.append(False, (beyond > noise)[:-1])
            here = np.flatnonzero(~surely_below & ~surely_above)
            ends = (here[0], here[-1] + 1) if len(here) else (0, self.size)
            low, high = (float(edges[end]) for end in ends)
            yield Estimate("quantile", f"{share:g}", value, min(low, value), max(high, value))


def _counted(name: str, of: str, value: float, deviation: float) -> Estimate:
    return Estimate(name, of, value, value - NORMAL * deviation, value + NORMAL * deviation)


def _steps(x: np.ndarray, number: int) -> np.ndarray:
    """The step (n,) of each value from 0 to 1."""
    return np.minimum((x * number).astype(np.int64), number - 1)


class Placed(NamedTuple):
    """A part at its place.

    column: name of the column; empty: the users.
    place: number of the column.
    part: what it sums.
    here: its coordinates.
    """

    column: str
    place: int
    part: Part
    here: slice


STATISTICS = ("count", "mean", "quantiles", "histogram")


@dataclass(frozen=True)
class Statistics(Algorithm):
    """Private statistics of the columns of `data=columns`.

    columns: for each column its name, and two numbers, its bounds, or texts, its categories.
    statistics: any of `STATISTICS`; means and quantiles are of numbers.
    clip: bound on a user's vector; 1.
    noise_multiplier: standard deviation of the noise on a sum.
    quantiles: shares of the users below.
    bins: of a histogram of numbers.
    steps: of the bounds, between which quantiles are interpolated.
    weighting: home (every user has one silo) or uniform (1 / silos).
    """

    columns: list[list[Any]]
    statistics: list[str]
    clip: float
    noise_multiplier: float
    quantiles: list[float] = field(default_factory=lambda: [0.25, 0.5, 0.75])
    bins: int = 10
    steps: int = 256
    weighting: str = "home"

    label = "Statistics"
    releases_model = False

    def __post_init__(self) -> None:
        numbers_and_categories(self.columns)
        require_one_of(self, weighting=WEIGHTINGS)
        known = set(self.statistics) <= set(STATISTICS) and len(self.statistics) > 0
        require(known, "algo.statistics", self.statistics, f"some of {', '.join(STATISTICS)}")
        inside = len(self.quantiles) > 0 and all(0 < one < 1 for one in self.quantiles)
        require(inside, "algo.quantiles", self.quantiles, "shares between 0 and 1")
        for name in ("bins", "steps"):
            fits = 1 <= getattr(self, name) <= 2**12
            require(fits, f"algo.{name}", getattr(self, name), "a number up to 4096")
        require(bool(self.placed), "algo.statistics", self.statistics, "histogram for categories")

    def check(self, plan: Plan) -> None:
        clip, mechanism = plan.mechanism.clip, plan.mechanism
        kept = mechanism.mixing is None and not mechanism.marks
        name = type(mechanism).__name__.lower()
        require(kept, "mechanism", name, "gaussian or discrete_gaussian: intervals know its noise")
        require(clip == 1, "algo.clip", clip, "1, since no user's vector is longer")
        one = self.weighting == "uniform" or plan.federation.one_silo_each
        ways = "uniform, or data.user_scope=silo or allocator=by_user, so that each has one silo"
        require(one, "algo.weighting", self.weighting, f"{ways}: a user may be in several")
        plan.parameters.check_noise()

    @cached_property
    def placed(self) -> tuple[Placed, ...]:
        """All parts in the order of their coordinates."""
        found: list[Placed] = []
        if "count" in self.statistics:
            found.append(Placed("", 0, Count(), slice(0, 1)))
        for place, column in enumerate(numbers_and_categories(self.columns)):
            parts: list[Part] = []
            if isinstance(column, Category):
                parts = [Histogram(column.values, categories=True)]
                parts = parts if "histogram" in self.statistics else []
            elif column.range is not None:
                low, high = column.range
                edges = np.linspace(low, high, self.bins + 1)
                names = tuple(f"{a:g} to {b:g}" for a, b in pairwise(edges))
                shares = tuple(self.quantiles)
                known = {
                    "mean": Moments(low, high),
                    "quantiles": Quantiles(low, high, self.steps, shares),
                    "histogram": Histogram(names, categories=False),
                }
                parts = [part for name, part in known.items() if name in self.statistics]
            for part in parts:
                start = found[-1].here.stop if found else 0
                found.append(Placed(column.name, place, part, slice(start, start + part.size)))
        return tuple(found)

    @property
    def size(self) -> int:
        """Number of coordinates of a user's vector."""
        return int(self.placed[-1].here.stop)

    @property
    def share(self) -> float:
        """The factor of each part."""
        return (1 - ROUNDING) / math.sqrt(len(self.placed))

    @property
    def contributors(self) -> Users:
        return Users(WEIGHTINGS[self.weighting]())

    def model_of(self, model: Model) -> Model:
        return Sums(self.size)

    def last_round(self, federation: Federation) -> int | None:
        return 1

    def init(self, params: np.ndarray, plan: Plan) -> State:
        return State(np.zeros(self.size))

    def requests(self, round: int, plan: Plan) -> tuple[Request, ...]:
        return (Request(SumNoise()),)

    def broadcast(self, state: State, query: Query) -> dict[str, np.ndarray]:
        return {}

    def local_update(self, silo: Silo, query: Query, down: Mapping[str, np.ndarray]) -> LocalJob:
        return LocalJob(self._blocks(silo))

    def _blocks(self, silo: Silo) -> Computation:
        """The users' vectors, in blocks of whole users."""
        import torch

        x, data = silo.data.x.cpu().numpy(), silo.data
        most = max(1, BLOCK // self.size)
        first = 0
        while first < len(data.users):
            last = int(np.searchsorted(data.starts, data.starts[first] + most, side="right")) - 1
            last = max(first + 1, last)
            starts = data.starts[first : last + 1]
            vectors = self.vectors(x[starts[0] : starts[-1]], starts - starts[0])
            yield Contributions(data.users[first:last], torch.from_numpy(vectors))
            first = last

    def vectors(self, x: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """The vectors (k, size) of k users. Each is made of the user's rows alone, by sums in their
        order.

        x: (n, columns) values, NaN where there is none.
        starts: (k + 1,): user i owns rows starts[i]:starts[i + 1].
        """
        found = np.zeros((len(starts) - 1, self.size))
        for _, place, part, here in self.placed:
            known = np.isfinite(x[:, place]) if not isinstance(part, Count) else np.ones(len(x))
            rows = np.zeros((len(x), part.size))
            rows[known > 0] = part.vectors(x[known > 0, place])
            sums = np.add.reduceat(rows, starts[:-1], axis=0)
            number = np.add.reduceat(known.astype(np.int64), starts[:-1])
            found[:, here] = sums / np.maximum(number, 1)[:, None]
        return found * self.share

    def global_update(self, state: State, query: Query, total: Total, plan: Plan) -> State:
        return state.with_params(total.vector * self._silos(plan))

    def _silos(self, plan: Plan) -> int:
        """What a sum is multiplied by, so that each pair of a user and a silo counts 1."""
        return plan.federation.n_silos if self.weighting == "uniform" else 1

    def table(self, state: State, plan: Plan) -> list[dict[str, Any]]:
        deviation = plan.mechanism.noise_multiplier * self._silos(plan) / self.share
        rows: list[dict[str, Any]] = []
        for column, _, part, here in self.placed:
            for found in part.estimates(state.params[here] / self.share, deviation):
                rows.append({"column": column, **found._asdict()})
        return rows
