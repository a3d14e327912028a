import os
from multiprocessing import get_context

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.streams import DIRECT_BYTES, Streams, SystemGenerator


def test_same_name_same_stream_and_any_other_name_another():
    base = Streams(3).generator("noise", 5, "silo1").random(8)
    assert np.array_equal(base, Streams(3).generator("noise", 5, "silo1").random(8))
    others = [
        Streams(4).generator("noise", 5, "silo1"),
        Streams(3).generator("batches", 5, "silo1"),
        Streams(3).generator("noise", 6, "silo1"),
        Streams(3).generator("noise", 5, "silo2"),
        Streams(3).generator("noise", 51, "silo"),
    ]
    assert all(not np.array_equal(base, other.random(8)) for other in others)


def test_torch_seeds_fit_and_differ():
    seeds = {Streams(0).torch_seed("dropout", round, "silo0") for round in range(200)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_secret_draws_are_seeded_only_in_simulation():
    simulated = [Streams(1).secret("noise", 1, "silo0").random(4) for _ in range(2)]
    assert np.array_equal(*simulated)
    real = [Streams(1, system=True).secret("noise", 1, "silo0").random(4) for _ in range(2)]
    assert not np.array_equal(*real)


def test_system_generator_draws_no_gaussian_in_floating_point():
    assert not hasattr(SystemGenerator(), "standard_normal")


@pytest.mark.parametrize("length", [0, 1, DIRECT_BYTES, DIRECT_BYTES + 1, 300_001])
def test_system_bytes_are_uniform_and_never_the_same(length):
    one, two = (np.frombuffer(SystemGenerator().bytes(length), dtype=np.uint8) for _ in range(2))
    assert len(one) == len(two) == length
    if length >= DIRECT_BYTES:
        assert stats.chisquare(np.bincount(one, minlength=256)).pvalue > 1e-6
        assert stats.chisquare(np.bincount(one ^ two, minlength=256)).pvalue > 1e-6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that fork")
def test_a_forked_process_draws_its_own_bytes():
    generator = SystemGenerator()
    generator.bytes(2 * DIRECT_BYTES)
    with get_context("fork").Pool(2) as pool:
        drawn = pool.map(generator.bytes, [2 * DIRECT_BYTES] * 8, chunksize=1)
    assert len({*drawn, generator.bytes(2 * DIRECT_BYTES)}) == 9


def test_system_uniform_numbers_lie_inside_the_unit_interval():
    uniform = SystemGenerator().random(200_000)
    assert 0 < uniform.min() < uniform.max() < 1


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 6), (-3, 4), (0, 257), (10, 10 + 2**8)])
def test_system_integers_are_uniform(low, high):
    drawn = SystemGenerator().integers(low, high, 100_000)
    assert drawn.dtype == np.int64
    assert low <= drawn.min() <= drawn.max() < high
    assert stats.chisquare(np.bincount(drawn - low, minlength=high - low)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(0, 2**63, np.int64), (-(2**63), 2**63, np.int64), (0, 2**64, np.uint64), (0, 3 * 2**61 + 1, np.int64)],
)
def test_large_system_integers_are_uniform(low, high, dtype):
    drawn = SystemGenerator().integers(low, high, 100_000, dtype)
    assert drawn.dtype == dtype
    assert low <= int(drawn.min()) <= int(drawn.max()) < high
    assert stats.kstest((drawn.astype(float) - low) / (high - low), "uniform").pvalue > 1e-6
    # The lowest bits as well.
    assert stats.chisquare(np.bincount((drawn & dtype(7)).astype(int), minlength=8)).pvalue > 1e-6


def test_system_integers_below_a_bound_each():
    high = np.tile([1, 2, 5, 300, 2**40], 20_000)
    drawn = SystemGenerator().integers(0, high, len(high))
    assert not drawn[high == 1].any()
    for bound in (2, 5, 300):
        assert stats.chisquare(np.bincount(drawn[high == bound], minlength=bound)).pvalue > 1e-6
    assert stats.kstest(drawn[high == 2**40] / 2**40, "uniform").pvalue > 1e-6


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**64))
def test_system_integers_stay_between_their_bounds(low, span):
    high = min(low + span, 2**63)
    drawn = SystemGenerator().integers(low, high, 20)
    assert all(low <= int(number) < high for number in drawn)
    # numpy takes the same arguments.
    np.random.default_rng(0).integers(low, high, size=20, dtype=np.int64)


@pytest.mark.parametrize("high", [0, -1, np.array([3, 0, 3])])
def test_system_integers_from_an_empty_range_are_refused(high):
    with pytest.raises(ValueError, match="nothing lies"):
        SystemGenerator().integers(0, high, 3)


def test_system_generator_gives_as_many_as_asked():
    for size in (0, 1, 7):
        assert SystemGenerator().integers(0, 10, size).shape == (size,)
    assert (SystemGenerator().integers(4, 5, 7) == 4).all()
