"""Tests of noise that should be independent unit Gaussians, in every coordinate of every vector.

Noise is given as vectors (m, d) with the run and the place that each comes from. Four questions:

- scale: is there as much as there should be, over all and where it is least?
- shape: do the values follow the normal law, in the middle and in the tails?
- coordinates: does one coordinate say nothing about others? Frequencies and lags show copies at any
  distance and periods, reversed sums mirrored copies, the angles between vectors a rank below the
  full one, and singular values of sketches directions without noise.
- vectors: does the noise of one round, silo and run say nothing about that of others?

Each test counts all places that it has looked at. Scale apart, the amount of noise does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import kolmogi, kolmogorov
from scipy.stats import beta, binom, chi2, norm

from fedpriv.testing.premise import FOUND, Premise, too_little

TAILS = (2.0, 2.5, 3.5)
"""Deviations beyond which values are counted."""
QUANTILE = float(norm.ppf(FOUND))
MAX_VECTORS = 600
"""Most vectors that are compared pair by pair."""


@dataclass(frozen=True)
class Place:
    """Where a noise comes from.

    query: name of the query.
    round: the round.
    part: silo or local step; "" for the sum.
    again: whether the round was done for the second time.
    """

    query: str
    round: int
    part: str = ""
    again: bool = False

    def __str__(self) -> str:
        return f"{self.part or 'the sum'} in round {self.round}{' done again' * self.again}"


@dataclass(frozen=True)
class Noise:
    """Vectors of noise of one kind.

    name: what it is.
    x: (m, d), in units of the declared deviation.
    runs: (m,) the run of each vector.
    places: the place of each vector.
    tensors: the coordinates' limits of the model's tensors, with 0 and d.
    """

    name: str
    x: np.ndarray
    runs: np.ndarray
    places: Sequence[Place]
    tensors: Sequence[int]


def scale_tests(noise: Noise, observer: str = "") -> Iterator[Premise]:
    """Whether there is enough noise: over all, and in the round, silo, tensor and coordinate with
    the least."""
    squares = noise.x**2
    rows, columns = squares.sum(axis=1), squares.sum(axis=0)
    m, d = squares.shape

    def least(name: str, sums: np.ndarray, sizes: np.ndarray, places: list[str]) -> Premise:
        return too_little(observer, f"{noise.name}{name}", sums, sizes, places)

    yield least("", rows.sum(keepdims=True), np.array([m * d]), [""])
    for name, labels in (
        (" of round ", [str(place.round) for place in noise.places]),
        (" of ", [place.part for place in noise.places]),
    ):
        known, index = np.unique(labels, return_inverse=True)
        if len(known) > 1:
            sizes = np.bincount(index) * d
            yield least(name, np.bincount(index, rows), sizes, list(known))
    if len(noise.tensors) > 2:
        sums = np.add.reduceat(columns, noise.tensors[:-1])
        numbers = [str(number) for number in range(len(sums))]
        yield least(" in tensor ", sums, np.diff(noise.tensors) * m, numbers)
    yield least(" in one coordinate, number ", columns, np.full(d, m), [*map(str, range(d))])


def independence_tests(noise: Noise) -> Iterator[Premise]:
    """All tests for which the amount of noise does not matter."""
    yield from shape_tests(noise)
    yield from coordinate_tests(noise)
    yield from vector_tests(noise)


def shape_tests(noise: Noise) -> Iterator[Premise]:
    """Whether values follow the normal law."""
    x = np.sort(noise.x / np.sqrt(np.mean(noise.x**2)), axis=None)
    n = len(x)
    below = norm.cdf(x)
    steps = np.arange(n + 1) / n
    distance = float(max(np.max(steps[1:] - below), np.max(below - steps[:-1])))

    def moved(level: float) -> float:
        return (kolmogi(level) + QUANTILE / 2) / math.sqrt(n)

    name = f"distance of {noise.name} from the normal law"
    yield Premise(
        "", name, distance, 0.0, float(kolmogorov(distance * math.sqrt(n))), "shape", moved
    )
    yield from _lengths(noise)
    for limit in TAILS:
        rate = 2 * norm.sf(limit)
        hits = int((np.abs(x) > limit).sum())
        chance = 2 * min(binom.cdf(hits, n, rate), binom.sf(hits - 1, n, rate))

        def fewer(level: float, rate: float = rate) -> float:
            spread = math.sqrt(rate * (1 - rate) / n)
            return (float(norm.isf(level / 2)) + QUANTILE) * spread / rate

        name = f"share of {noise.name} beyond {limit:g} deviations"
        yield Premise("", name, hits / n, rate, min(1.0, float(chance)), "tails", fewer)


def _lengths(noise: Noise) -> Iterator[Premise]:
    """Whether vectors differ in length as they should: neither all the same nor too much."""
    m, d = noise.x.shape
    squares = np.sum(noise.x**2, axis=1) / np.mean(noise.x**2)
    z = norm.ppf(np.clip(chi2.cdf(squares, d), 1e-16, 1 - 1e-16))
    if m > 1:
        total = float(np.sum((z - z.mean()) ** 2))
        chance = min(1.0, 2 * float(min(chi2.cdf(total, m - 1), chi2.sf(total, m - 1))))
        yield Premise(
            "", f"spread of lengths of {noise.name}", total / (m - 1), 1.0, chance, "lengths",
            lambda level: 1 - float(chi2.ppf(level / 2, m - 1) / chi2.ppf(FOUND, m - 1)),
        )  # fmt: skip


def coordinate_tests(noise: Noise) -> Iterator[Premise]:
    """Whether coordinates are independent of each other."""
    x = noise.x / np.sqrt(np.mean(noise.x**2))
    m, d = x.shape
    waves = np.fft.fft(x, axis=1) / math.sqrt(d)
    half = d // 2 + 1
    power = np.mean(np.abs(waves[:, :half]) ** 2, axis=0)
    real = np.zeros(half, dtype=bool)
    real[0] = True
    real[-1] |= d % 2 == 0
    freedom = np.where(real, m, 2 * m)
    chances = 2 * np.minimum(chi2.cdf(power * freedom, freedom), chi2.sf(power * freedom, freedom))
    worst = int(np.argmin(chances))
    yield Premise(
        "", f"power of frequency {worst} / {d} in {noise.name}", float(power[worst]), 1.0,
        min(1.0, half * float(chances[worst])), "frequency",
        lambda level: 1 - float(chi2.ppf(level / half / 2, 2 * m) / chi2.ppf(FOUND, 2 * m)),
    )  # fmt: skip
    lags = np.fft.ifft(np.mean(np.abs(waves) ** 2, axis=0)).real[1 : (d + 1) // 2]
    yield from _largest(
        f"correlation of coordinates of {noise.name} at distance ", lags, 1 / math.sqrt(m * d), 1
    )
    mirrored = np.fft.ifft(np.mean(waves**2, axis=0)).real
    # A coordinate meets itself where twice its number is the sum of the mirror's two.
    itself = np.bincount(2 * np.arange(d) % d, minlength=d) / d
    yield from _largest(
        f"correlation of coordinates of {noise.name} that add up to ",
        mirrored - itself, math.sqrt(2 / (m * d)), 0,
    )  # fmt: skip
    yield from _rank(noise.name, x)


def _largest(name: str, found: np.ndarray, error: float, first: int) -> Iterator[Premise]:
    """Whether the largest of correlations (k,) is zero up to chance."""
    k = len(found)
    if not k:
        return
    at = int(np.argmax(np.abs(found)))
    chance = min(1.0, 2 * k * float(norm.sf(abs(found[at]) / error)))

    def smallest(level: float) -> float:
        return (float(norm.isf(level / k / 2)) + QUANTILE) * error

    yield Premise("", f"{name}{at + first}", float(found[at]), 0.0, chance, "correlation", smallest)


def _rank(name: str, x: np.ndarray) -> Iterator[Premise]:
    """Whether noise fills all directions: angles between vectors, and the least singular value of
    coordinates and of random directions."""
    m, d = x.shape
    few = x[_some(m)]
    cosines = _cosines(few)[np.triu_indices(len(few), 1)]
    squares = d * float((cosines**2).sum())
    pairs = len(cosines)

    def spread(level: float) -> float:
        return 1 - float(chi2.ppf(1 - FOUND, pairs) / chi2.isf(level, pairs))

    share = pairs / squares if squares else 1.0
    chance = float(chi2.sf(squares, pairs))
    yield Premise("", f"share of directions that {name} fills", share, 1.0, chance, "rank", spread)
    columns = min(d, m // 8)
    if columns < 2:
        return
    rng = np.random.default_rng(0)
    mixed, _ = np.linalg.qr(rng.standard_normal((d, columns)))
    chosen = rng.permutation(d)[:columns]
    for what, sketch in (("coordinates", x[:, chosen]), ("random directions", x @ mixed)):
        least = float(np.linalg.svd(sketch / math.sqrt(m), compute_uv=False)[-1])
        expected = 1 - math.sqrt(columns / m)  # Davidson and Szarek, 2001, theorem II.13
        chance = math.exp(-m * max(0.0, expected - least) ** 2 / 2)
        yield Premise("", f"least singular value of {what} of {name}", least, expected, chance)


def _some(m: int) -> np.ndarray:
    """At most `MAX_VECTORS` of m vectors: the first ones, and so whole runs."""
    return np.arange(min(m, MAX_VECTORS))


def _cosines(x: np.ndarray) -> np.ndarray:
    """(m, m): cosines of the angles between vectors (m, d)."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x @ x.T)


def vector_tests(noise: Noise) -> Iterator[Premise]:
    """Whether vectors are independent of each other: any two, and those of two places over all
    runs."""
    d = noise.x.shape[1]
    some = _some(len(noise.x))
    cosines = _cosines(noise.x[some])
    m, runs_of, places_of = len(some), noise.runs[some], [noise.places[at] for at in some]
    one, other = np.triu_indices(m, 1)
    if not len(one):
        return
    pairs = len(one)
    squares = cosines[one, other] ** 2
    worst = int(np.argmax(squares))
    chance = float(beta.sf(squares[worst], 0.5, (d - 1) / 2))
    places = [places_of[index[worst]] for index in (one, other)]
    runs = " of two runs" * bool(runs_of[one[worst]] != runs_of[other[worst]])
    yield Premise(
        "", f"correlation of {noise.name} of {places[0]} and of {places[1]}{runs}",
        math.sqrt(squares[worst]), 0.0, min(1.0, pairs * chance), "correlation",
        lambda level: (float(norm.isf(level / pairs / 2)) + QUANTILE) / math.sqrt(d),
    )  # fmt: skip
    known = list(dict.fromkeys(places_of))
    number = {place: at for at, place in enumerate(known)}
    at = np.array([number[place] for place in places_of])
    pooled, counts = np.zeros((2, len(known), len(known)))
    for run in np.unique(runs_of):
        here = np.flatnonzero(runs_of == run)
        mesh = np.ix_(at[here], at[here])
        pooled[mesh] += cosines[np.ix_(here, here)]
        counts[mesh] += 1
    one, other = np.triu_indices(len(known), 1)
    z = pooled[one, other] * np.sqrt(d / np.maximum(counts[one, other], 1))
    if not len(z):
        return
    worst = int(np.argmax(np.abs(z)))
    share = float(pooled[one[worst], other[worst]] / max(counts[one[worst], other[worst]], 1))
    chance = min(1.0, 2 * len(z) * float(norm.sf(abs(z[worst]))))
    error = 1 / math.sqrt(d * counts[one, other].max())
    yield Premise(
        "", f"correlation of {noise.name} of {known[one[worst]]} and of {known[other[worst]]}",
        share, 0.0, chance, "correlation",
        lambda level: (float(norm.isf(level / len(z) / 2)) + QUANTILE) * error,
    )  # fmt: skip
