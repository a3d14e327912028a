import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fedpriv.aggregation.base import AggregationAborted
from fedpriv.aggregation.private_weighting_integers import (
    blind,
    cancelling_masks,
    from_bytes,
    integers_below,
    reading,
    shared_integers,
    to_bytes,
)
from fedpriv.streams import SystemGenerator

SEED = bytes(range(32))


@pytest.mark.parametrize("bound", [2, 3, 10, 257])
def test_integers_are_uniform_below_any_bound(bound):
    for drawn in (integers_below(bound, 5000, SystemGenerator().bytes), shared_integers(bound, 5000, SEED, b"test")):
        assert chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-7
    assert max(drawn) < bound
    assert integers_below(1, 3, SystemGenerator().bytes) == [0, 0, 0]


def test_large_integers_are_uniform_and_repeat_for_who_has_seed_and_purpose():
    n = 2**511 + 12345  # half of all draws are rejected
    drawn = shared_integers(n, 500, SEED, b"test")
    assert kstest([value / n for value in drawn], "uniform").pvalue > 1e-7
    assert drawn[:9] == shared_integers(n, 9, SEED, b"test")
    assert drawn[:9] != shared_integers(n, 9, SEED, b"other")
    assert drawn[:9] != shared_integers(n, 9, bytes(32), b"test")


def test_blinds_are_units_of_their_own():
    n = 3 * 5 * 7 * 11
    blinds = [blind(n, SEED, user) for user in range(400)]
    assert all(math.gcd(b, n) == 1 and 0 < b < n for b in blinds)
    units = [r for r in range(n) if math.gcd(r, n) == 1]
    assert chisquare(np.histogram(blinds, bins=[*units[::48], n])[0]).pvalue > 1e-7
    assert blinds[3] == blind(n, SEED, 3)


def test_masks_cancel_over_all_silos_and_only_there():
    n, names = 2**127 - 1, ["silo0", "silo1", "silo10", "silo2"]
    seeds = {frozenset((i, j)): SystemGenerator().bytes(32) for i in names for j in names if i != j}
    masks = [cancelling_masks(n, 5, i, {j: seeds[frozenset((i, j))] for j in names if j != i}, b"round") for i in names]
    assert [sum(column) % n for column in zip(*masks)] == [0] * 5
    for left_out in range(4):
        assert all(sum(column) % n for column in zip(*(masks[:left_out] + masks[left_out + 1 :])))


@given(st.integers(2, 2**70), st.data())
def test_numbers_survive_their_bytes(bound, data):
    numbers = data.draw(st.lists(st.integers(0, bound - 1), max_size=5))
    assert from_bytes(to_bytes(numbers, bound), bound, len(numbers)) == numbers


def test_what_is_no_list_of_numbers_ends_the_exchange():
    for raw in (b"\1\2\3", b"\xff\xff"):
        with pytest.raises(AggregationAborted, match="a message of silo3 is unreadable"), reading("silo3"):
            from_bytes(raw, 1000, 1)
