import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from fedpriv.crypto.uniform_integers import (
    from_bytes,
    integers_below,
    shared_bytes,
    shared_integers,
    to_bytes,
    width,
)
from fedpriv.util.streams import SystemGenerator

SEED = bytes(range(32))


@pytest.mark.parametrize("bound", [2, 3, 10, 257])
def test_integers_are_uniform_below_any_bound(bound):
    for drawn in (
        integers_below(bound, 5000, SystemGenerator().bytes),
        shared_integers(bound, 5000, seed=SEED, purpose=b"test"),
    ):
        assert chisquare(np.bincount(drawn, minlength=bound)).pvalue > 1e-7
    assert max(drawn) < bound
    assert integers_below(1, 3, SystemGenerator().bytes) == [0, 0, 0]


def test_large_integers_are_uniform_and_repeat_for_who_has_seed_and_purpose():
    n = 2**511 + 12345  # half of all draws are rejected
    drawn = shared_integers(n, 500, seed=SEED, purpose=b"test")
    assert kstest([value / n for value in drawn], "uniform").pvalue > 1e-7
    assert drawn[:9] == shared_integers(n, 9, seed=SEED, purpose=b"test")
    assert drawn[:9] != shared_integers(n, 9, seed=SEED, purpose=b"other")
    assert drawn[:9] != shared_integers(n, 9, seed=bytes(32), purpose=b"test")


@given(st.integers(2, 2**70), st.data())
def test_numbers_survive_their_bytes(bound, data):
    numbers = data.draw(st.lists(st.integers(0, bound - 1), max_size=5))
    assert from_bytes(to_bytes(numbers, bound), bound, len(numbers)) == numbers


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\1\2\3", "3 bytes for 1 numbers of 2"),
        (b"\1", "1 bytes for 1 numbers of 2"),
        (b"\xff\xff", "not below"),
        ((1000).to_bytes(2, "little"), "not below"),
    ],
)
def test_what_is_no_list_of_numbers_is_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        from_bytes(raw, 1000, 1)


@pytest.mark.parametrize(("bound", "length"), [(2, 1), (255, 1), (256, 2), (1000, 2), (2**512, 65)])
def test_every_number_below_the_bound_fits_its_bytes(bound, length):
    assert width(bound) == len(to_bytes([bound - 1], bound)) == length


def test_shared_bytes_go_on_where_they_stopped():
    read, again = shared_bytes(SEED, b"test"), shared_bytes(SEED, b"test")
    assert read(5) + read(40) == again(45)
    assert shared_bytes(SEED, b"other")(45) != shared_bytes(SEED, b"test")(45)
