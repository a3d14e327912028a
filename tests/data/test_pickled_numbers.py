"""A pickle is read as data: nothing is called, no memory is taken, no pointer is followed."""

import pickle
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.pickled_numbers import read_pickled_numbers

NUMBERS = st.integers(-(2**63), 2**63 - 1)
LEAVES = (
    NUMBERS | st.text(max_size=8) | st.binary(min_size=1, max_size=8) | st.none() | st.booleans()
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=10)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.integers(2, 4))
def test_reads_what_python_writes(values, protocol):
    assert read_pickled_numbers(pickle.dumps(values, protocol)) == values


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("element", ["u1", "i2", "i4", "i8"])
def test_reads_arrays_of_numpy(protocol, element):
    array = np.arange(-6, 6).astype(element).reshape(3, 4)
    found = read_pickled_numbers(pickle.dumps({"data": array, "labels": [1, 2, 3]}, protocol))
    np.testing.assert_array_equal(found["data"], array)
    assert found["data"].dtype == element
    assert found["labels"] == [1, 2, 3]


class Called:
    def __init__(self, function, *arguments):
        self.called = function, arguments

    def __reduce__(self):
        return self.called


def pointers():
    """An array of objects whose pointers are the file's bytes."""
    raw = pickle.dumps({"data": np.arange(4, dtype="u1"), "labels": []}, protocol=2)
    return raw.replace(b"u1", b"O8")


ATTACKS = {
    "calls print": pickle.dumps({"data": Called(print, "called")}),
    "calls eval": pickle.dumps({"data": Called(eval, "print('called')")}, protocol=0),
    "calls numpy": pickle.dumps({"data": Called(np.fromfile, "/dev/zero")}),
    "pointers": pointers(),
    "object array": pickle.dumps({"data": np.array([{}, []], dtype=object)}),
    "structured": pickle.dumps({"data": np.zeros(2, dtype=[("a", "u1"), ("b", "O")])}),
    "floats": pickle.dumps({"data": np.zeros(2)}, protocol=2),
    "wrong size": pickle.dumps({"data": np.zeros(4, "u1")}, 2).replace(b"K\x04\x85", b"K\x05\x85"),
    "other order": pickle.dumps({"data": np.zeros(4, ">i4")}, protocol=2),
    "a list": pickle.dumps([1, 2]),
    "unhashable key": b"\x80\x02}]K\x01s.",
    "tuple key": b"\x80\x02}K\x01K\x02\x86K\x01s.",
    "empty": b"",
    "no end": pickle.dumps({"a": 1})[:-1],
    "stack underflow": b"\x80\x02K\x01s.",
    "no mark": b"\x80\x02}u.",
    "two values": b"\x80\x02}}.",
    "extension": b"\x80\x02\x82\x01.",
    "persistent": b"\x80\x02K\x01Q.",
    "instance": b"(S'called'\nibuiltins\nprint\n.",
    "unknown memo": b"\x80\x02h\x05.",
    "great text": b"\x80\x02X\xff\xff\xff\xff.",
    "great bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "mark in call": b"\x80\x02(cnumpy\ndtype\n(R.",
    "calls data": b"\x80\x02}K\x01\x85R.",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_anything_else_is_refused(attack, capsys):
    with pytest.raises(ValueError, match=r"\w"):
        read_pickled_numbers(ATTACKS[attack])
    assert capsys.readouterr().out == ""


def test_a_great_number_in_the_memo_takes_no_memory():
    """Python's own reader makes room for four thousand million values."""
    raw = b"\x80\x02}X\x01\x00\x00\x00aK\x01r\xff\xff\xff\xffs."
    assert read_pickled_numbers(raw) == {"a": 1}


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_random_damage_is_refused_or_read_as_numbers():
    rng = random.Random(0)
    whole = pickle.dumps(
        {"data": np.arange(24, dtype="u1").reshape(2, 12), "labels": [3, 400], "names": ["x"]}, 2
    )
    for _ in range(4000):
        raw = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(raw))
            match rng.randrange(3):
                case 0:
                    raw[place] = rng.randrange(256)
                case 1:
                    del raw[place : place + rng.randint(1, 5)]
                case _:
                    raw[place:place] = whole[rng.randrange(len(whole)) :][: rng.randint(1, 30)]
        try:
            found = read_pickled_numbers(bytes(raw))
        except ValueError:
            continue
        for value in found.values():
            assert not isinstance(value, np.ndarray) or value.dtype.kind in "iu"
