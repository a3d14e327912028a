"""Exact samples from the discrete Gaussian over the integers: a table, random bits, and rejection.
And from the discrete Laplace distribution (`discrete_laplace`).

|Y| = a w + u with w = 2^m: the number a of a bin is drawn with probability proportional to exp(-(a
w)^2 / (2 sigma^2)), the place u in it is m random bits, and the candidate is accepted with
probability

    exp(-((a w + u)^2 - (a w)^2) / (2 sigma^2)),

which is near 1, since a standard deviation spans `LEAST_BINS` bins or more (below, w = 1 and all
are accepted). A sign is drawn as well, and a zero with a minus is rejected: zero has one sign.
Rejected samples are drawn again.

Both random choices compare a uniform number with a real number between known bounds. They draw more
bits of the uniform number while the bounds leave the answer open (lazy bits, as in C. Karney,
Sampling exactly from the normal distribution, ACM TOMS 2016). For most samples a table answers
after 16 bits. For the others, integers decide about the bin. The acceptance uses float64's
exponential with an assumed error of `FLOAT_ERROR`, where its own is below 2^-50, and integers where
that does not decide. So no probability is ever rounded. C. Canonne, G. Kamath, T. Steinke, The
discrete Gaussian for differential privacy (NeurIPS 2020), prove what such noise guarantees, and
have an exact sampler made of Bernoulli trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedpriv.util.streams import SystemGenerator

Generator = np.random.Generator | SystemGenerator
"""numpy's generator, or the operating system's for noise that protects somebody."""

MAX_SIGMA = 2**50
MOST_SCALE = 2**47
"""Largest scale of Laplace noise: within `FARTHEST` scales every integer is a float64."""
LEAST_BINS = 64
FARTHEST = 64
"""A sample beyond so many standard deviations is an OverflowError; its probability is below
exp(-2000)."""

PREFIX_BITS = 16
TRIAL_BITS = 53
WORD_BITS = 62
GUARD_BITS = 128
FLOAT_ERROR = 2.0**-45
BLOCK = 2**16
"""Candidates made at a time, few enough for the processor's cache."""
OPEN = 2**PREFIX_BITS - 1
"""In place of a bin: the first bits leave it open."""


def discrete_gaussian(sigma: int, size: int, rng: Generator) -> np.ndarray:
    """(size,) int64 independent samples, k with probability proportional to exp(-k^2 / (2
    sigma^2)).

    sigma: from 1 to 2^50. Raises ValueError for another, and OverflowError beyond `FARTHEST`
    standard deviations.
    """
    if not 1 <= sigma <= MAX_SIGMA or sigma != int(sigma):
        raise ValueError(f"sigma={sigma}: an integer from 1 to {MAX_SIGMA}")
    bins = bins_of(int(sigma))
    samples = np.empty(size, dtype=np.int64)
    rejected = _fill(bins, samples, rng)
    while len(rejected):
        again = np.empty(len(rejected), dtype=np.int64)
        still = _fill(bins, again, rng)
        samples[rejected] = again
        rejected = rejected[still]
    return samples


def _fill(bins: Bins, samples: np.ndarray, rng: Generator) -> np.ndarray:
    """Write candidates into `samples`, block by block. Returns the positions of the rejected
    ones."""
    rejected = [
        start + bins.fill(samples[start : start + BLOCK], rng)
        for start in range(0, len(samples), BLOCK)
    ]
    return np.concatenate(rejected) if rejected else np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Bins:
    """Tables for one sigma.

    shift: m, bins are 2^m integers wide.
    low, high: for a = 1, 2, ..., low <= 2^62 P(bin >= a) <= high, int64, falling.
    by_prefix: the bin for each value of the first 16 bits, or `OPEN`.
    accepted: below it the first 16 bits of an acceptance are certain to accept, whatever the place
        in the bin; zero for `OPEN`.
    """

    sigma: int
    shift: int
    low: np.ndarray
    high: np.ndarray
    by_prefix: np.ndarray
    accepted: np.ndarray

    def fill(self, samples: np.ndarray, rng: Generator) -> np.ndarray:
        """Write a candidate into each of `samples`, (size,) int64. Returns the positions of the
        rejected ones."""
        # The top of a word has the first bits of a bin, the bottom the sign and the place.
        size = len(samples)
        drawn = rng.bytes(10 * size)
        words = np.frombuffer(drawn, dtype="<i8", count=size)
        prefix = np.frombuffer(drawn, dtype="<u2", count=4 * size)[3::4].astype(np.intp)
        trial = np.frombuffer(drawn, dtype="<u2", offset=8 * size)
        found = self.by_prefix.take(prefix)
        slow = np.flatnonzero(trial >= self.accepted.take(prefix))
        unknown = slow[found[slow] == OPEN]
        found[unknown] = self.drawn(prefix[unknown], rng)
        np.left_shift(found, self.shift, out=samples, dtype=np.int64)
        samples |= words & (2**self.shift - 1)
        rejected = slow[~self.accepts(samples[slow], found[slow], trial[slow], rng)]
        minus = words >> self.shift
        minus &= 1
        zeros = np.flatnonzero(samples == 0)
        np.negative(minus, out=minus)
        samples ^= minus  # -y is y with all its bits turned, plus one
        samples -= minus
        return np.union1d(rejected, zeros[minus[zeros] < 0])

    def drawn(self, prefix: np.ndarray, rng: Generator) -> np.ndarray:
        """(k,) bins for uniform numbers that begin with the bits of `prefix` (k,) int64."""
        more = WORD_BITS - PREFIX_BITS
        words = prefix << more | rng.integers(0, 2**more, size=len(prefix))
        least = _reached(self.low, words)
        most = _reached(self.high, words)
        for index in np.flatnonzero(least != most):
            least[index] = self.refined(int(words[index]), rng)
        return least

    def refined(self, word: int, rng: Generator) -> int:
        """The bin for a uniform number that begins with the 62 bits of `word` and goes on as far as
        needed."""
        bits = WORD_BITS
        found = None
        while found is None:
            word = _longer(word, rng)
            bits = bits + WORD_BITS
            found = bin_at(word, thresholds(self.sigma, self.shift, bits))
        if found << self.shift >= FARTHEST * self.sigma:
            raise OverflowError(f"a sample beyond {FARTHEST} standard deviations")
        return found

    def accepts(
        self, y: np.ndarray, found: np.ndarray, trial: np.ndarray, rng: Generator
    ) -> np.ndarray:
        """Whether the candidates y (k,) int64 in bins `found` are accepted, by numbers whose first
        bits are `trial`."""
        more = TRIAL_BITS - PREFIX_BITS
        words = trial.astype(np.int64) << more | rng.integers(0, 2**more, size=len(trial))
        start = found.astype(np.int64) << self.shift
        place = (y - start).astype(float)
        likely = np.exp(-(place / self.sigma) * ((y + start) / (2 * self.sigma)))
        distance = np.ldexp(words.astype(float), -TRIAL_BITS) - likely
        accepted: np.ndarray = (distance < 0) | (place == 0)
        for index in np.flatnonzero((abs(distance) < FLOAT_ERROR) & (place > 0)):
            squares = int(y[index]) ** 2 - int(start[index]) ** 2
            accepted[index] = below_exponential(
                int(words[index]), TRIAL_BITS, squares, 2 * self.sigma**2, rng
            )
        return accepted


def _reached(falling: np.ndarray, words: np.ndarray) -> np.ndarray:
    """How many of the thresholds each word lies below."""
    return len(falling) - np.searchsorted(falling[::-1], words, side="right")


def _longer(word: int, rng: Generator) -> int:
    return word << WORD_BITS | int(rng.integers(0, 2**WORD_BITS, size=1)[0])


@lru_cache(maxsize=64)
def bins_of(sigma: int) -> Bins:
    """The bins for `sigma`, computed in a few milliseconds."""
    shift = max(0, sigma.bit_length() - LEAST_BINS.bit_length())
    low, high = np.array(thresholds(sigma, shift, WORD_BITS), dtype=np.int64).T
    first = np.arange(2**PREFIX_BITS, dtype=np.int64) << (WORD_BITS - PREFIX_BITS)
    last = first | (1 << (WORD_BITS - PREFIX_BITS)) - 1
    least = _reached(low, last)
    most = _reached(high, first)
    known = least == most
    by_prefix = np.where(known, most, OPEN).astype(np.uint16)
    accepted = np.array(
        [_certain(int(number), sigma, shift) for number in range(int(most[known].max()) + 1)]
    )
    return Bins(
        sigma,
        shift,
        low,
        high,
        by_prefix,
        np.where(known, accepted[np.where(known, most, 0)], 0).astype(np.uint16),
    )


def _certain(number: int, sigma: int, shift: int) -> int:
    """The first 16 bits below which an acceptance is certain in the bin of this number. Computed in
    integers: parties with the same seed must draw the same samples, on machines whose exponentials
    differ."""
    if not shift:
        return (1 << PREFIX_BITS) - 1
    # The least likely place of a bin is its end.
    end = exponential((2 * number + 1) * 4**shift, 2 * sigma**2, WORD_BITS + GUARD_BITS)
    slack = int(2.0**WORD_BITS * FLOAT_ERROR) << GUARD_BITS + 1
    return (end - slack) >> (WORD_BITS + GUARD_BITS - PREFIX_BITS)


def bin_at(word: int, bounds: tuple[tuple[int, int], ...]) -> int | None:
    """The bin of all uniform numbers that begin with the word's bits; None if they have several."""
    for number, (low, high) in enumerate(bounds):
        if word >= high:
            return number
        if word >= low:
            return None
    raise AssertionError("the last lower bound is zero")


@lru_cache(maxsize=8)
def thresholds(sigma: int, shift: int, bits: int) -> tuple[tuple[int, int], ...]:
    """Integers low <= 2^bits P(bin >= a) <= high for a = 1, 2, ... up to the first low that is
    zero.

    A uniform number that begins with the `bits` bits of w lies below P(bin >= a) if w < low, and
    not if w >= high.
    """
    # In units of 2^-digits the root is off by less than 2^4 digits, weight a by less than that
    # times (a + 1)^2. So all weights, with the omitted ones, are off by less than that
    # times the cube of their number, some 10^4 for a thousand bits: far below `error`.
    digits = bits + GUARD_BITS
    root = exponential(4**shift, 2 * sigma**2, digits)
    weights = [1 << digits]
    factor = root
    square = root * root >> digits
    while weights[-1]:  # exp(-x a^2) = exp(-x (a - 1)^2) * exp(-x (2 a - 1))
        weights.append(weights[-1] * factor >> digits)
        factor = factor * square >> digits
    total = sum(weights)
    error = 1 << (GUARD_BITS // 2)
    tail = total
    bounds = list[tuple[int, int]]()
    for weight in weights:
        tail -= weight
        low = (max(tail - error, 0) << bits) // (total + error)
        bounds.append((low, -((-(tail + error) << bits) // (total - error))))
        if not low:
            break
    return tuple(bounds)


def below_exponential(
    word: int, bits: int, numerator: int, denominator: int, rng: Generator
) -> bool:
    """Whether a uniform number that begins with the `bits` bits of `word` is below exp(-numerator /
    denominator).

    The fraction is above 0 and below 2; further bits are drawn as needed.
    """
    while True:
        error = 1 << (GUARD_BITS // 2)
        middle = exponential(numerator, denominator, bits + GUARD_BITS)
        if word + 1 << GUARD_BITS <= middle - error:
            return True
        if word << GUARD_BITS >= middle + error:
            return False
        word = _longer(word, rng)
        bits = bits + WORD_BITS


def discrete_laplace(scale: int, size: int, rng: Generator) -> np.ndarray:
    """(size,) int64 independent samples, k with probability proportional to exp(-|k| / scale).

    |k| = a scale + u: u is uniform below `scale`, accepted with probability exp(-u / scale), and a
    has probability proportional to exp(-a) (Canonne, Kamath, Steinke, Algorithm 2).

    scale: from 1 to 2^47. Raises ValueError for another, and OverflowError beyond `FARTHEST`
    scales, whose probability is below exp(-64).
    """
    if not 1 <= scale <= MOST_SCALE:
        raise ValueError(f"scale={scale}: an integer from 1 to {MOST_SCALE}")
    return np.array([_laplace(scale, rng) for _ in range(size)], dtype=np.int64)


def _laplace(scale: int, rng: Generator) -> int:
    while True:
        place = int(rng.integers(0, scale, size=1)[0])
        if not _happens(place, scale, rng):
            continue
        whole = 0
        while _happens(1, 1, rng):
            whole += 1
        if whole >= FARTHEST:
            raise OverflowError(f"a sample beyond {FARTHEST} scales")
        found = whole * scale + place
        minus = bool(rng.integers(0, 2, size=1)[0])
        if found or not minus:  # zero has one sign
            return -found if minus else found


def _happens(numerator: int, denominator: int, rng: Generator) -> bool:
    """True with probability exp(-numerator / denominator), for a fraction from 0 to 1."""
    return numerator == 0 or below_exponential(
        _longer(0, rng), WORD_BITS, numerator, denominator, rng
    )


def exponential(numerator: int, denominator: int, digits: int) -> int:
    """2^digits exp(-numerator / denominator) for a fraction from 0 to 2, off by less than 8 a term
    of its series, of which there are fewer than 2 * digits."""
    total = 0
    term = 1 << digits
    terms = 0
    while term:  # exp(-x) = 1 - x + x^2 / 2 - ...
        total += -term if terms % 2 else term
        terms += 1
        term = term * numerator // (denominator * terms)
    return total
