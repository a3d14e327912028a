import math
from contextlib import nullcontext
from decimal import Decimal, localcontext

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedpriv.mechanisms import binomial_sampling, discrete_sampling
from fedpriv.mechanisms.binomial_sampling import (
    ERROR,
    FARTHEST,
    FEW,
    MOST_TRIALS,
    binomial,
    log_ratio,
)
from fedpriv.mechanisms.discrete_sampling import (
    MAX_SIGMA,
    OPEN,
    below_exponential,
    bin_at,
    bins_of,
    discrete_gaussian,
    thresholds,
)
from fedpriv.util.streams import Streams, SystemGenerator

SIZE = 400_000


def stream(purpose):
    return Streams(0).generator(purpose)


def fits(samples, log_weight, first, last, width=1):
    """p-value of the samples' counts in bins of `width` numbers from `first` to `last`, all others
    in one more."""
    numbers = np.arange(first - 1000 * width, last + 1000 * width)
    weights = np.exp(log_weight(numbers.astype(float)))
    edges = np.arange(first, last + width + 1, width) - 0.5
    expected, found = (
        np.histogram(numbers, edges, weights=weights)[0],
        np.histogram(samples, edges)[0],
    )
    expected = np.append(expected, weights.sum() - expected.sum()) * len(samples) / weights.sum()
    return stats.chisquare(np.append(found, len(samples) - found.sum()), expected).pvalue


@pytest.mark.parametrize(
    ("sigma", "width", "rng"),
    [
        *((sigma, 1, SystemGenerator()) for sigma in (1, 3)),
        (64, 8, SystemGenerator()),
        (1000, 125, SystemGenerator()),
        (2, 1, stream("noise")),
        (7, 1, stream("noise")),
    ],
)
def test_samples_have_the_discrete_gaussian_distribution(sigma, width, rng):
    samples = discrete_gaussian(sigma, SIZE, rng)
    assert samples.dtype == np.int64
    assert fits(samples, lambda k: -(k**2) / (2 * sigma**2), -4 * sigma, 4 * sigma, width) > 1e-6
    # The order tells nothing.
    assert abs(np.corrcoef(samples[:-1], samples[1:])[0, 1]) < 5 / math.sqrt(SIZE)


@pytest.mark.parametrize("sigma", [2**20 - 1, MAX_SIGMA])
def test_large_samples_look_like_the_continuous_gaussian(sigma):
    scaled = discrete_gaussian(sigma, SIZE, stream("large")) / sigma
    assert abs(scaled.mean()) < 5 / math.sqrt(SIZE)
    assert abs((scaled**2).mean() - 1) < 5 * math.sqrt(2 / SIZE)
    assert stats.kstest(scaled, "norm").pvalue > 1e-6


@pytest.mark.parametrize("sigma", [2**40, 3**31])
def test_low_digits_of_large_samples_are_uniform(sigma):
    # Modulo m the weights of a Gaussian that spans many periods differ by less than exp(-2 pi^2
    # sigma^2 / m^2).
    samples = discrete_gaussian(sigma, SIZE, stream("digits"))
    for modulus in (2, 3, 256, 1000):
        assert stats.chisquare(np.bincount(samples % modulus, minlength=modulus)).pvalue > 1e-6


def test_same_stream_same_samples():
    first, second, other = (
        discrete_gaussian(9, 70_000, stream(purpose)) for purpose in ("a", "a", "b")
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("size", [0, 1, 2, 65_537])
def test_as_many_samples_as_asked(size):
    assert discrete_gaussian(3, size, stream("size")).shape == (size,)


@pytest.mark.parametrize("sigma", [0, -1, MAX_SIGMA + 1, 1.5, math.nan])
def test_other_sigmas_are_refused(sigma):
    with pytest.raises(ValueError, match="an integer from 1 to"):
        discrete_gaussian(sigma, 3, stream("refused"))


class Script:
    """Gives the numbers it was told to, and no others."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def integers(self, low, high, size):
        drawn, self.numbers = self.numbers[:size], self.numbers[size:]
        assert len(drawn) == size
        return np.array(drawn)


def exact_tails(sigma, shift, bits, count):
    """2^bits P(bin >= a) for a = 1 .. count, to more digits than 310 bits need."""
    weights = [
        (-Decimal((a << shift) ** 2) / (2 * sigma**2)).exp() for a in range(25 * sigma >> shift)
    ]
    total = sum(weights)
    tails, tail = [], total
    for weight in weights[:count]:
        tail -= weight
        tails.append(2**bits * tail / total)
    return tails


@pytest.mark.parametrize("bits", [1, 8, 62, 124, 310])
@pytest.mark.parametrize(("sigma", "shift"), [(1, 0), (7, 0), (1000, 3), (3**31, 43)])
def test_thresholds_enclose_the_exact_probabilities(sigma, shift, bits):
    bounds = thresholds(sigma, shift, bits)
    with localcontext() as context:
        context.prec = 130
        exact = exact_tails(sigma, shift, bits, len(bounds))
        assert all(
            low <= probability <= high <= low + 2
            for (low, high), probability in zip(bounds, exact, strict=True)
        )
    assert bounds[-1][0] == 0
    assert all(low > 0 for low, _ in bounds[:-1])


@pytest.mark.parametrize("sigma", [1, 64, 1000, MAX_SIGMA])
def test_tables_say_only_what_is_certain(sigma):
    bins, bounds = bins_of(sigma), thresholds(sigma, bins_of(sigma).shift, 62)
    assert bins.shift == 0 or 64 <= sigma / 2**bins.shift <= 128
    for prefix in [*range(0, 2**16, 193), 0, 2**16 - 1]:
        first, last = (bin_at(word, bounds) for word in (prefix << 46, ((prefix + 1) << 46) - 1))
        assert bins.by_prefix[prefix] == (first if first == last is not None else OPEN)
        if first == last is not None:
            end = Decimal((2 * first + 1) << 2 * bins.shift if bins.shift else 0) / (2 * sigma**2)
            assert (
                (-end).exp() - Decimal(2) ** -15
                <= Decimal(int(bins.accepted[prefix])) / 2**16
                <= (-end).exp()
            )
        else:
            assert bins.accepted[prefix] == 0


@pytest.mark.parametrize(
    ("number", "place"), [(0, 2**34 - 1), (3, 1), (80, 2**33), (500, 2**34 - 1)]
)
def test_candidates_are_accepted_with_their_own_probability(number, place):
    sigma = 2**40 + 5
    bins, start = bins_of(sigma), number << bins_of(sigma).shift
    rng = stream(f"trials {number}")
    found, y = np.full(SIZE, number, dtype=np.uint16), np.full(SIZE, start + place)
    accepted = bins.accepts(y, found, rng.integers(0, 2**16, size=SIZE), rng)
    exact = math.exp(-((start + place) ** 2 - start**2) / (2 * sigma**2))
    assert stats.binomtest(int(accepted.sum()), SIZE, exact).pvalue > 1e-6


def test_every_number_of_first_bits_left_open_gives_the_same_bins():
    """Bins by 62 bits against their probabilities, whatever the table says of the first 16."""
    bins, rng = bins_of(9), stream("open")
    drawn = bins.drawn(rng.integers(0, 2**16, size=SIZE), rng)
    assert fits(drawn, lambda a: np.where(a < 0, -np.inf, -(a**2) / 162), 0, 36) > 1e-6


def test_bits_that_leave_the_bin_open_are_followed_by_more():
    bins, (low, high) = bins_of(1), thresholds(1, 0, 62)[0]
    assert high == low + 1
    for word, expected in ((low - 1, 1), (high, 0)):
        assert bins.drawn(np.array([word >> 46]), Script(word % 2**46)).tolist() == [expected]
    longer = thresholds(1, 0, 124)[0][0]
    assert longer >> 62 == low
    next_bits = longer % 2**62
    for more, expected in (
        ([next_bits - 1], 1),
        ([next_bits + 1], 0),
        ([next_bits, 0], 1),
        ([next_bits, 2**62 - 1], 0),
    ):
        script = Script(low % 2**46, *more)
        assert bins.drawn(np.array([low >> 46]), script).tolist() == [expected]
        assert not script.numbers
    # The smallest number of all lies in a tail without end.
    assert bins.drawn(np.array([0]), Script(0, 2**62 - 1)).tolist() == [9]
    assert bins.drawn(np.array([0]), Script(0, 1)).tolist() == [13]


def test_a_sample_beyond_the_farthest_is_an_error():
    with pytest.raises(OverflowError, match="64 standard deviations"):
        bins_of(1).drawn(np.array([0]), Script(*[0] * 50, 1))


@pytest.mark.parametrize(("found", "refused"), [(7999, False), (8000, True)])
def test_the_farthest_is_counted_in_integers_and_not_in_bins(found, refused, monkeypatch):
    """64 standard deviations of 1,000 in bins of eight."""
    bins = bins_of(1000)
    monkeypatch.setattr(discrete_sampling, "thresholds", lambda *_: [])
    monkeypatch.setattr(discrete_sampling, "bin_at", lambda *_: found)
    with pytest.raises(OverflowError) if refused else nullcontext():
        assert bins.refined(0, Script(0)) == found


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 1), (1, 3), (7, 5), (1, 2**80)])
def test_a_uniform_number_is_compared_with_an_exponential_to_the_last_bit(numerator, denominator):
    with localcontext() as context:
        context.prec = 200
        exact = (-Decimal(numerator) / denominator).exp()
        first, longer = int(exact * 2**53), int(exact * 2**115)
    for word, more, expected in (
        (first - 1, [], True),
        (min(first + 1, 2**53), [], False),
        (first, [longer % 2**62 - 1], True),
        (first, [longer % 2**62 + 1], False),
    ):
        script = Script(*more)
        assert below_exponential(word, 53, numerator, denominator, script) == expected
        assert not script.numbers


class Asked:
    """Hands on a generator's numbers, and keeps the ranges that it was asked for."""

    def __init__(self):
        self.rng, self.ranges = np.random.default_rng(0), set()

    def bytes(self, length):
        return self.rng.bytes(length)

    def integers(self, low, high, size):
        self.ranges.add((low, high))
        return self.rng.integers(low, high, size=size, dtype=np.uint64).astype(np.int64)


@pytest.mark.parametrize("sigma", [1, 1000, 2**40])
def test_bits_that_go_on_from_the_first_ones_are_whole_and_uniform(sigma):
    """Fewer of them, or a range without its end, would change probabilities too little for any
    count of samples."""
    rng = Asked()
    discrete_gaussian(sigma, 300_000, rng)
    assert rng.ranges == {(0, 2**46), (0, 2**37)}
    bins_of(sigma).refined(2**61, rng)
    assert rng.ranges == {(0, 2**46), (0, 2**37), (0, 2**62)}


@pytest.mark.parametrize(("number", "place"), [(1, 1), (1, 3), (5, 3), (40, 7)])
def test_a_chance_too_near_for_floats_is_decided_by_more_bits(number, place):
    """The first 53 bits are those of the exact chance: only those that follow tell."""
    bins = bins_of(1000)
    start = number << bins.shift
    with localcontext() as context:
        context.prec = 60
        chance = (-Decimal((start + place) ** 2 - start**2) / (2 * bins.sigma**2)).exp()
        word = int(chance * 2**53)
    trial = np.array([word >> 37], dtype=np.uint16)
    for more, accepted in ((0, True), (2**62 - 1, False)):
        rng = Script(word & (2**37 - 1), more)
        found = bins.accepts(np.array([start + place]), np.array([number]), trial, rng)
        assert found.tolist() == [accepted]


# -- binomial sampling -----------------------------------------------------------------------------


TRIALS = [0, 1, 4, 100, FEW, FEW + 4, 10**5, 10**9]


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize(
    "rng", [SystemGenerator(), np.random.default_rng(0)], ids=["system", "seeded"]
)
def test_samples_are_binomial(trials, rng):
    samples = binomial(trials, 20_000, rng)
    assert samples.dtype == np.int64
    edges = np.unique(stats.binom.ppf(np.linspace(0, 1, 21)[1:-1], trials, 0.25))
    likely = np.diff(np.concatenate([[0], stats.binom.cdf(edges, trials, 0.25), [1]]))
    found = np.bincount(np.searchsorted(edges, samples, side="left"), minlength=len(edges) + 1)
    seen = likely > 1e-9
    assert found[~seen].sum() == 0
    if seen.sum() > 1:
        assert (
            stats.chisquare(found[seen], likely[seen] / likely[seen].sum() * len(samples)).pvalue
            > 1e-6
        )


@pytest.mark.parametrize("trials", [FEW + 4, 10**6 + 2, 10**9, MOST_TRIALS])
def test_ratios_are_as_right_as_the_text_says(trials):
    """Against logarithms of factorials with 60 digits."""
    deviation = math.sqrt(trials * 3 / 16)
    sigma, middle = math.ceil(1.001 * deviation + 1.5), round(trials / 4)
    offsets = [int(w * deviation) for w in (-FARTHEST, -11, -5, -1, 0, 1, 5, 11, FARTHEST)]
    with mpmath.workdps(60):

        def exact(offset):
            k = mpmath.mpf(middle + offset)
            ways = (
                mpmath.loggamma(trials + 1)
                - mpmath.loggamma(k + 1)
                - mpmath.loggamma(trials - k + 1)
            )
            chance = ways + k * mpmath.log(0.25) + (trials - k) * mpmath.log(0.75)
            return chance + mpmath.mpf(offset) ** 2 / (2 * mpmath.mpf(sigma) ** 2)

        wanted = [float(exact(offset) - exact(0)) for offset in offsets]
    found = log_ratio(np.array(offsets, dtype=float), trials, sigma)
    np.testing.assert_allclose(found - found[4], wanted, atol=ERROR / 4, rtol=0)


@pytest.mark.parametrize("size", [1, 2, 4096, 4097, 9000])
def test_each_sample_is_drawn(size):
    """Tossed in blocks of 4,096; none of so many trials succeeding has probability 1e-1000."""
    assert binomial(FEW, size, SystemGenerator()).min() > 0


def test_a_chance_above_one_ends_the_sampling(monkeypatch):
    """As if a ratio between the points that were looked at was higher than those by a
    thousandth.
    """
    monkeypatch.setattr(
        binomial_sampling,
        "log_ratio",
        lambda offset, *_: np.full(offset.shape, (len(offset) < 4097) / 1000),
    )
    with pytest.raises(ArithmeticError, match="above 1"):
        binomial(FEW + 4, 100, SystemGenerator())


def test_too_many_trials_are_refused():
    assert binomial(MOST_TRIALS, 1, np.random.default_rng(0))[0] == pytest.approx(
        MOST_TRIALS / 4, rel=1e-6
    )
    with pytest.raises(ValueError, match="from 0 to"):
        binomial(MOST_TRIALS + 1, 1, np.random.default_rng(0))


def test_samples_lean_to_the_side_that_binomial_ones_do():
    """Their skewness is 0.5 / sqrt(3 N / 16), too little for a test of 20,000 samples to see its
    sign."""
    trials, size = FEW + 4, 1_000_000
    samples = binomial(trials, size, SystemGenerator())
    deviation = math.sqrt(trials * 3 / 16)
    skewness = (((samples - trials / 4) / deviation) ** 3).mean()
    assert abs(skewness - 0.5 / deviation) < 5 * math.sqrt(15 / size)


@pytest.mark.parametrize("trials", [FEW + 4, 10**5, 10**9])
def test_no_chance_to_accept_is_above_one(trials):
    """Between all points at which the largest ratio is looked for."""
    deviation = math.sqrt(trials * 3 / 16)
    sigma = math.ceil(1.001 * deviation + 1.5)
    places = np.linspace(-FARTHEST, FARTHEST, 400_003) * deviation
    coarse = log_ratio(
        np.linspace(-FARTHEST * deviation, FARTHEST * deviation, 4097), trials, sigma
    ).max()
    assert 0 <= log_ratio(places, trials, sigma).max() - coarse < 2.0**-20
