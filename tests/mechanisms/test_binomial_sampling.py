import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from fedpriv.mechanisms import binomial_sampling
from fedpriv.mechanisms.binomial_sampling import (
    ERROR,
    FARTHEST,
    FEW,
    MOST_TRIALS,
    binomial,
    log_ratio,
)
from fedpriv.util.streams import SystemGenerator

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
    places = np.linspace(-FARTHEST, FARTHEST, 2_000_003) * deviation
    coarse = log_ratio(
        np.linspace(-FARTHEST * deviation, FARTHEST * deviation, 4097), trials, sigma
    ).max()
    assert 0 <= log_ratio(places, trials, sigma).max() - coarse < 2.0**-20
