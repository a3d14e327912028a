import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_mechanism import DiscreteGaussianPrivacyLoss
from scipy import stats

from fedpriv.mechanisms import discrete_sampling
from fedpriv.mechanisms.discrete_sampling import MAX_SIGMA, bernoulli_exp, discrete_gaussian, multiples, thresholds
from fedpriv.streams import Streams, SystemGenerator

SIZE = 400_000


def stream(purpose):
    return Streams(0).generator(purpose)


def fits(samples, log_weight, first, last, width=1):
    """p-value of the samples' counts in bins of `width` numbers from `first` to `last`, all others in one more."""
    numbers = np.arange(first - 1000 * width, last + 1000 * width)
    weights = np.exp(log_weight(numbers.astype(float)))
    edges = np.arange(first, last + width + 1, width) - 0.5
    expected, found = np.histogram(numbers, edges, weights=weights)[0], np.histogram(samples, edges)[0]
    expected = np.append(expected, weights.sum() - expected.sum()) * len(samples) / weights.sum()
    return stats.chisquare(np.append(found, len(samples) - found.sum()), expected).pvalue


@pytest.mark.parametrize(("sigma", "width"), [(1, 1), (2, 1), (3, 1), (7, 1), (64, 8), (1000, 125)])
@pytest.mark.parametrize("rng", [stream("noise"), SystemGenerator()], ids=["seeded", "system"])
def test_samples_have_the_discrete_gaussian_distribution(sigma, width, rng):
    samples = discrete_gaussian(sigma, SIZE, rng)
    assert samples.dtype == np.int64
    assert fits(samples, lambda k: -(k**2) / (2 * sigma**2), -4 * sigma, 4 * sigma, width) > 1e-6
    # The order tells nothing.
    assert abs(np.corrcoef(samples[:-1], samples[1:])[0, 1]) < 5 / math.sqrt(SIZE)


@pytest.mark.parametrize("sigma", [1, 5, 100])
def test_distribution_function_is_that_of_the_accountants_library(sigma):
    samples = discrete_gaussian(sigma, SIZE, stream("noise"))
    at = np.arange(-3 * sigma, 3 * sigma + 1, max(1, sigma // 5))
    below = (samples <= at[:, None]).mean(axis=1)
    exact = np.exp(DiscreteGaussianPrivacyLoss(sigma).noise_log_cdf(at.astype(float)))
    assert (abs(below - exact) < 5.5 * np.sqrt(exact * (1 - exact) / SIZE)).all()


@pytest.mark.parametrize("sigma", [1, 7, 2**40])
def test_both_signs_are_as_likely(sigma):
    samples = discrete_gaussian(sigma, SIZE, stream("signs"))
    signs = samples[samples != 0] > 0
    assert stats.binomtest(int(signs.sum()), len(signs)).pvalue > 1e-6
    assert stats.ks_2samp(samples[samples > 0], -samples[samples < 0]).pvalue > 1e-6


@pytest.mark.parametrize("sigma", [2**20 - 1, 2**40, 3**31, MAX_SIGMA])
def test_large_samples_look_like_the_continuous_gaussian(sigma):
    scaled = discrete_gaussian(sigma, SIZE, stream("large")) / sigma
    assert abs(scaled.mean()) < 5 / math.sqrt(SIZE)
    assert abs((scaled**2).mean() - 1) < 5 * math.sqrt(2 / SIZE)
    assert stats.kstest(scaled, "norm").pvalue > 1e-6


@pytest.mark.parametrize("sigma", [2**40, 3**31])
def test_low_digits_of_large_samples_are_uniform(sigma):
    # Modulo m the weights of a Gaussian that spans many periods differ by less than exp(-2 pi^2 sigma^2 / m^2).
    samples = discrete_gaussian(sigma, SIZE, stream("digits"))
    for modulus in (2, 3, 256, 1000):
        assert stats.chisquare(np.bincount(samples % modulus, minlength=modulus)).pvalue > 1e-6


def test_same_stream_same_samples():
    first, second, other = (discrete_gaussian(9, 70_000, stream(purpose)) for purpose in ("a", "a", "b"))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("size", [0, 1, 2, 65_537])
def test_as_many_samples_as_asked(size):
    assert discrete_gaussian(3, size, stream("size")).shape == (size,)


@pytest.mark.parametrize("sigma", [0, -1, MAX_SIGMA + 1, 1.5, math.nan])
def test_other_sigmas_are_refused(sigma):
    with pytest.raises(ValueError, match="an integer from 1 to"):
        discrete_gaussian(sigma, 3, stream("refused"))


@pytest.mark.parametrize("multiple", [2**13 - 1, 2**62])
def test_a_sample_that_does_not_fit_is_an_error(monkeypatch, multiple):
    monkeypatch.setattr(discrete_sampling, "multiples", lambda size, rng: np.full(size, multiple))
    with pytest.raises(OverflowError):
        discrete_gaussian(MAX_SIGMA, 3, stream("overflow"))


@pytest.mark.parametrize("divisor", [1, 2, 3])
@pytest.mark.parametrize(
    ("numerators", "denominator"), [((), 1), ((1,), 3), ((2,), 3), ((7,), 7), ((0,), 5), ((3, 4), 5)]
)
def test_trials_succeed_with_probability_exp_minus_x(divisor, numerators, denominator):
    x = math.prod(numerator / denominator for numerator in numerators) / divisor
    arrays = tuple(np.full(SIZE, numerator) for numerator in numerators)
    successes = bernoulli_exp(SIZE, stream(f"trials {x}"), arrays, denominator, divisor)
    assert stats.binomtest(int(successes.sum()), SIZE, math.exp(-x)).pvalue > 1e-6


def test_each_trial_has_its_own_probability():
    numerators = np.arange(SIZE) % 5
    successes = bernoulli_exp(SIZE, stream("own"), (numerators,), 4)
    for numerator in range(5):
        own = successes[numerators == numerator]
        assert stats.binomtest(int(own.sum()), len(own), math.exp(-numerator / 4)).pvalue > 1e-6


@pytest.mark.parametrize("bits", [1, 2, 3, 5, 8, 62])
def test_multiples_have_the_same_distribution_for_any_bits_drawn_at_first(bits):
    size = 20_000 if bits < 8 else SIZE
    drawn = multiples(size, stream(f"multiples {bits}"), bits)
    assert fits(drawn, lambda v: np.where(v < 0, -np.inf, -(v**2) / 2), 0, 3) > 1e-6


@pytest.mark.parametrize("bits", [1, 8, 62, 124, 310])
def test_thresholds_enclose_the_exact_probabilities(bits):
    bounds = thresholds(bits)
    with localcontext() as context:
        context.prec = 300
        weights = [(-Decimal(v * v) / 2).exp() for v in range(40)]
        exact = [2**bits * sum(weights[v:]) / sum(weights) for v in range(1, len(bounds) + 1)]
    assert all(low <= probability <= high <= low + 2 for (low, high), probability in zip(bounds, exact))
    assert bounds[-1][0] == 0
    assert all(low > 0 for low, _ in bounds[:-1])


class Script:
    """Gives the numbers it was told to, and knows how many were asked for."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)

    def integers(self, low, high, size):
        drawn, self.numbers = self.numbers[:size], self.numbers[size:]
        return np.array(drawn)


def test_bits_that_leave_the_multiple_open_are_followed_by_more():
    (low, high), *_ = thresholds(62)
    assert high == low + 1
    for decided, expected in ((low - 1, 1), (high, 0)):
        assert multiples(1, Script(decided), 62).tolist() == [expected]
    (longer, _), *_ = thresholds(124)
    assert longer >> 62 == low
    next_bits = longer % 2**62
    for more, expected in (
        ([next_bits - 1], 1),
        ([next_bits + 1], 0),
        ([next_bits, 0], 1),
        ([next_bits, 2**62 - 1], 0),
    ):
        script = Script(low, *more)
        assert multiples(1, script, 62).tolist() == [expected]
        assert not script.numbers
    # The smallest number of all lies in a tail without end.
    assert multiples(1, Script(0, 2**62 - 1), 62).tolist() == [9]
    assert multiples(1, Script(0, 1), 62).tolist() == [13]
