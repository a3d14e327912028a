"""Noise for the fewest silos, less what is too much: the right variance and distribution for any
number of them."""

import hashlib
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedpriv.crypto.prg import SeededGenerator
from fedpriv.encoding.fixed_point import FixedPoint
from fedpriv.errors import ConfigError
from fedpriv.mechanisms.discrete_gaussian import DiscreteGaussian
from fedpriv.mechanisms.gaussian import Gaussian
from fedpriv.mechanisms.removable_noise import LEAST_PART, RemovableNoise, smallest_part
from fedpriv.util.streams import Streams, SystemGenerator

CLIP, SIGMA = 2.0, 1.5
FINE = FixedPoint(64, 200.0, 6)
SECRET = bytes(range(32))


def noise_for(least, most, size=8, mechanism=Gaussian(CLIP, SIGMA), encoding=FINE):  # noqa: B008
    return RemovableNoise(mechanism, least, most, size, 1.0, encoding)


def coarse(noise, steps):
    """The same noise on a grid on which the deviation of its smallest part spans about so many
    steps, a power of 2."""
    deviation = CLIP * SIGMA / math.sqrt(smallest_part(noise.least, noise.most))
    digits = round(math.log2(steps / deviation))
    bound = next(
        b
        for b in (float(2**e) for e in range(60))
        if FixedPoint(64, b, noise.most).precision <= digits
    )
    encoding = FixedPoint(64, bound, noise.most)
    assert encoding.precision == digits
    return replace(noise, encoding=encoding)


def left_over(noise, survivors, generator):
    """What `survivors` silos' noise comes to in a sum once the surplus is out."""
    secrets = [generator.bytes(32) for _ in range(survivors)]
    whole = sum(noise.share(generator, secret) for secret in secrets)
    kept = noise.kept(survivors)
    return whole - noise.surplus([noise.chain(secret)[kept] for secret in secrets], kept)


@pytest.mark.parametrize(("least", "most"), [(1, 1), (1, 2), (3, 5), (67, 100), (1, 30)])
def test_the_parts_that_stay_are_an_nth_of_the_variance(least, most):
    """And every part is made for the sum's sensitivity and grid."""
    drawn = []

    class Noting(Gaussian):
        def noise_share(self, size, shares, rng, **details):
            assert details == {"sensitivity": 2.5, "encoding": FINE}
            drawn.append(shares)
            return np.zeros(size)

    noise = RemovableNoise(Noting(CLIP, SIGMA), least, most, 1, 2.5, FINE)
    for silos in range(least, most + 1):
        drawn.clear()
        noise.share(SystemGenerator(), SECRET)
        every = list(drawn)
        drawn.clear()
        noise.surplus([SECRET], noise.kept(silos))
        stay = every[: len(every) - len(drawn)]
        assert every == stay + drawn
        assert sum(Fraction(1, shares) for shares in stay) == Fraction(1, silos)
        assert max(every) == smallest_part(least, most)


def test_a_chain_leads_to_its_end_from_every_secret_of_it_and_from_no_other():
    noise = noise_for(3, 7)
    *links, end = noise.chain(SECRET)
    assert links[0] == SECRET
    assert len({*links, end}) == 5
    for kept, link in enumerate(links):
        assert noise.leads_to(end, link, kept)
        assert not noise.leads_to(end, link, kept - 1 if kept else 1)
        assert not noise.leads_to(end, hashlib.sha256(link).digest(), kept)
        assert not noise.leads_to(noise.chain(bytes(32))[-1], link, kept)


@pytest.mark.parametrize("mechanism", [Gaussian(CLIP, SIGMA), DiscreteGaussian(CLIP, SIGMA)])
@pytest.mark.parametrize("streams", [Streams(7), Streams(7, system=True)])
def test_surplus_is_taken_out_to_the_last_bit(mechanism, streams):
    """What stays is what the parts before would have been alone, each drawn from its own secret."""
    noise = noise_for(2, 5, mechanism=mechanism)
    generator = streams.secret("noise", 1, "silo0")
    whole = noise.share(generator, SECRET)
    np.testing.assert_array_equal(whole, noise.encoding.nearest(whole))
    links = noise.chain(SECRET)
    parts = [
        mechanism.noise_share(8, shares, SeededGenerator(link, b"removable noise"), encoding=FINE)
        for shares, link in zip((4 * 5, 3 * 4, 2 * 3), links)
    ]
    for kept in range(4):
        surplus = noise.surplus([links[kept]], kept)
        np.testing.assert_array_equal(surplus, sum(parts[kept:], np.zeros(8)))
        fixed = whole - surplus - sum(parts[:kept], np.zeros(8))
        assert abs(fixed).max() < 16 * CLIP * SIGMA / math.sqrt(5)


def test_seeded_noise_is_the_same_again_and_real_noise_is_not():
    noise = noise_for(2, 4)
    seeded = [noise.share(Streams(3).secret("noise", 1, "silo0"), SECRET) for _ in range(2)]
    np.testing.assert_array_equal(*seeded)
    assert not np.array_equal(
        noise.share(SystemGenerator(), SECRET), noise.share(SystemGenerator(), SECRET)
    )


@pytest.mark.parametrize("survivors", [2, 3, 4])
def test_what_stays_on_the_coarsest_grid_is_a_discrete_gaussian(survivors):
    """Against its probabilities, computed here; its variance exceeds the target by less than one
    percent."""
    noise = coarse(noise_for(2, 4, size=2**17, mechanism=DiscreteGaussian(CLIP, SIGMA)), LEAST_PART)
    unit = noise.encoding.unit
    spans = [CLIP * SIGMA / math.sqrt(shares) / unit for shares in (4, 12, 6)][
        : 1 + noise.kept(survivors)
    ]
    variance = survivors * sum(math.ceil(math.hypot(span, 2)) ** 2 for span in spans)
    excess = variance / (CLIP * SIGMA / unit) ** 2 - 1
    assert 0 <= excess < 0.01
    values = left_over(noise, survivors, SystemGenerator()) / unit
    assert np.array_equal(values, np.rint(values))
    edges = np.rint(np.sqrt(variance) * stats.norm.ppf(np.arange(1, 64) / 64))
    integers = np.arange(-12 * math.isqrt(variance), 12 * math.isqrt(variance) + 1)
    mass = np.exp(-(integers**2) / (2 * variance))
    bins = np.searchsorted(edges, integers, side="right")
    expected = np.bincount(bins, weights=mass / mass.sum(), minlength=64) * len(values)
    counted = np.bincount(np.searchsorted(edges, values, side="right"), minlength=64)
    assert stats.chisquare(counted, expected).pvalue > 1e-5


def test_a_grid_too_coarse_for_the_smallest_part_is_refused():
    noise = coarse(noise_for(2, 4), LEAST_PART / 4)
    with pytest.raises(ConfigError, match=f"at least {LEAST_PART} are needed"):
        noise.mechanism.check_encoding(smallest_part(2, 4), noise.encoding, least=LEAST_PART)
    noise.mechanism.check_encoding(2, noise.encoding)


def test_no_noise_has_no_surplus():
    noise = noise_for(2, 4, mechanism=Gaussian(CLIP, 0.0))
    assert not noise.share(SystemGenerator(), SECRET).any()
    assert not noise.surplus([SECRET], 0).any()
