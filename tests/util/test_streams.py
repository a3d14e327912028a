import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.util.streams import (
    DIRECT_BYTES,
    GAMMA,
    Streams,
    SystemGenerator,
    branch,
    mix64,
)


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


def test_a_units_key_does_not_depend_on_the_other_units():
    units = np.array([4, 0, 900, 17])
    keys = Streams(3).unit_keys("dropout", 5, "silo1", units)
    assert keys.dtype == np.uint64
    np.testing.assert_array_equal(
        Streams(3).unit_keys("dropout", 5, "silo1", units[[2]]), keys[[2]]
    )
    others = [(3, "batches", 5, "silo1"), (4, "dropout", 5, "silo1"), (3, "dropout", 6, "silo1")]
    others.append((3, "dropout", 5, "silo2"))
    for seed, *name in others:
        assert not np.intersect1d(Streams(seed).unit_keys(*name, units), keys).size
    assert len(np.unique(Streams(0).unit_keys("dropout", 0, "", np.arange(100_000)))) == 100_000


def test_the_systems_keys_are_new_in_every_call():
    units, streams = np.arange(50), Streams(3, system=True)
    first, second = (streams.unit_keys("dropout", 5, "silo1", units) for _ in range(2))
    assert len(np.unique(np.concatenate([first, second]))) == 100
    coins = [streams.unit_coins("record sample", 5, "silo1", units)(0) for _ in range(2)]
    assert not np.array_equal(*coins)


def test_a_units_coins_are_uniform_and_its_own():
    units = np.arange(2000)
    coins = Streams(3).unit_coins("record sample", 5, "silo1", units)
    drawn = np.stack([coins(step) for step in range(100)])
    assert 0 <= drawn.min() < drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-6
    assert stats.chisquare((drawn < 0.3).sum(0)).pvalue > 1e-6
    for one, other in ((drawn[1:], drawn[:-1]), (drawn[:, 1:], drawn[:, :-1])):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5 / one.size**0.5
    some = Streams(3).unit_coins("record sample", 5, "silo1", units[7::100])
    np.testing.assert_array_equal(some(99), drawn[99, 7::100])


def test_branches_of_a_key_are_splitmix64():
    """The first outputs of SplitMix64 from seed 1234567, as listed on Rosetta Code."""
    known = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    keys = np.array([1234567], dtype=np.uint64)
    assert branch(keys, np.arange(5)).tolist() == known
    assert branch(keys, 3).tolist() == known[3:4]
    assert mix64(keys + np.uint64(GAMMA)).tolist() == known[:1]


def test_torch_seeds_fit_and_differ():
    seeds = {Streams(0).torch_seed("dropout", round, "silo0") for round in range(200)}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_secret_draws_are_seeded_only_in_simulation():
    simulated = [Streams(1).secret("noise", 1, "silo0").random(4) for _ in range(2)]
    assert np.array_equal(*simulated)
    real = [Streams(1, system=True).secret("noise", 1, "silo0").random(4) for _ in range(2)]
    assert not np.array_equal(*real)


@pytest.mark.parametrize("length", [0, 1, DIRECT_BYTES, DIRECT_BYTES + 1, 300_001])
def test_system_bytes_are_uniform_and_never_the_same(length):
    one, two = (np.frombuffer(SystemGenerator().bytes(length), dtype=np.uint8) for _ in range(2))
    assert len(one) == len(two) == length
    if length >= DIRECT_BYTES:
        assert stats.chisquare(np.bincount(one, minlength=256)).pvalue > 1e-6
        assert stats.chisquare(np.bincount(one ^ two, minlength=256)).pvalue > 1e-6


FORKED = f"""
from multiprocessing import get_context
from fedpriv.util.streams import SystemGenerator
generator = SystemGenerator()
generator.bytes({2 * DIRECT_BYTES})
with get_context("fork").Pool(2) as pool:
    drawn = pool.map(generator.bytes, [{2 * DIRECT_BYTES}] * 8, chunksize=1)
print(len({{*drawn, generator.bytes({2 * DIRECT_BYTES})}}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes that fork")
def test_a_forked_process_draws_its_own_bytes():
    # In a process of its own: one with other threads, like this, may never come back from a fork.
    drawn = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(drawn.stdout) == 9


@pytest.mark.parametrize(("low", "high"), [(0, 2), (0, 6), (-3, 4), (0, 257), (10, 10 + 2**8)])
def test_system_integers_are_uniform(low, high):
    drawn = SystemGenerator().integers(low, high, 100_000)
    assert drawn.dtype == np.int64
    assert low <= drawn.min() <= drawn.max() < high
    assert stats.chisquare(np.bincount(drawn - low, minlength=high - low)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (0, 2**63, np.int64),
        (-(2**63), 2**63, np.int64),
        (0, 2**64, np.uint64),
        (0, 3 * 2**61 + 1, np.int64),
        (0, 2**60 + 1, np.int64),  # the highest number has a single bit
    ],
)
def test_large_system_integers_are_uniform(low, high, dtype):
    drawn = SystemGenerator().integers(low, high, 100_000, dtype)
    assert drawn.dtype == dtype
    assert low <= int(drawn.min()) <= int(drawn.max()) < high
    assert stats.kstest((drawn.astype(float) - low) / (high - low), "uniform").pvalue > 1e-6
    # The lowest bits as well, and none is missing below.
    assert stats.chisquare(np.bincount((drawn & dtype(7)).astype(int), minlength=8)).pvalue > 1e-6
    assert int(np.bitwise_or.reduce(drawn.astype(np.uint64))) % 2**60 == 2**60 - 1


@pytest.mark.parametrize(("byte", "number"), [(0, 2.0**-53), (255, 1 - 2.0**-53)])
def test_no_system_number_is_zero_or_one(byte, number):
    class Repeated(SystemGenerator):
        def bytes(self, length):
            return bytes([byte]) * length

    assert Repeated().random(2).tolist() == [number, number]


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
    with pytest.raises(ValueError, match="must be above"):
        SystemGenerator().integers(0, high, 3)


def test_keys_of_one_unit_a_party_come_from_where_all_keys_come_from():
    """A subclass changes them in one place."""

    class Repeated(Streams):
        def unit_bases(self, *names):
            return Streams(8).unit_bases(*names)

    units = np.array([5, 0, 3])
    streams = Repeated(3, system=True)
    keys = streams.first_keys("batches", 2, ["silo0", "silo1", "silo2"], units)
    own = [
        streams.unit_keys("batches", 2, f"silo{i}", unit[None]).item()
        for i, unit in enumerate(units)
    ]
    assert keys.tolist() == own
    assert (keys == Streams(8).first_keys("batches", 2, ["silo0", "silo1", "silo2"], units)).all()


@pytest.mark.parametrize(
    ("parties", "units"), [(1, [5, 0, 3]), (3, [5]), (2, [[5, 0]]), (2, [5, 0, 3]), (0, [5])]
)
def test_keys_of_several_units_of_one_party_are_not_the_first_ones(parties, units):
    names = [f"silo{i}" for i in range(parties)]
    with pytest.raises(ValueError, match="not one each"):
        Streams(8).first_keys("batches", 2, names, np.array(units))
