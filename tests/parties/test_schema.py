"""Every kind of message takes what honest parties send and says what is wrong with everything
else.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedpriv.parties.messages import register
from fedpriv.parties.schema import (
    Array,
    Entries,
    Instance,
    Maybe,
    Names,
    Number,
    Parts,
    Raw,
    SchemaError,
    Table,
)


@register
@dataclass(frozen=True)
class Couple:
    left: object
    right: object


PAIR = {"left": Raw(1), "right": Names(("a", "b"), container=tuple)}
WEIGHTS = Array(np.float64, (3,), low=0.0, high=1.0)
RIGHT = [
    (Raw(3), b"abc"),
    (Raw(0), b""),
    (Number(), 2**2000),
    (Number(), -0.5),
    (Number(), np.float32(1e38)),
    (WEIGHTS, np.array([0.0, 0.5, 1.0])),
    (Array(np.uint32, (None, 2)), np.zeros((0, 2), np.uint32)),
    (Array(np.float64, (), finite=True), np.array(1.0)),
    (Array(np.uint64, (1,), high=2**64 - 1), np.array([2**64 - 1], np.uint64)),
    (Names(("a", "b")), []),
    (Names(("a", "b"), size=2), ["b", "a"]),
    (Names(("a", "b"), size=1, container=tuple), ("a",)),
    (Table(("a", "b"), Raw(1)), {"b": b"1", "a": b"2"}),
    (Table(("a", "b"), Raw(1), whole=False), {"b": b"1"}),
    (Entries({"x": Raw(1), "y": WEIGHTS}), {"x": b"1", "y": np.zeros(3)}),
    (Entries({}), {}),
    (Parts((Raw(1), Maybe(Raw(2)))), (b"1", None)),
    (Parts((Raw(1), Maybe(Raw(2)))), (b"1", b"22")),
    (Parts((Raw(1), Raw(1)), list), [b"1", b"2"]),
    (Maybe(Raw(1)), None),
    (Instance(Couple, PAIR), Couple(b"1", ("b",))),
]
WRONG = [
    (Raw(3), b"ab", "2 bytes instead of 3"),
    (Raw(3), bytearray(b"abc"), "bytearray instead of bytes"),
    (Raw(3), "abc", "str instead of bytes"),
    (Number(), True, "bool instead of a number"),
    (Number(), "1", "str instead of a number"),
    (Number(), None, "NoneType instead of a number"),
    (Number(), np.zeros(1), "ndarray instead of a number"),
    (Number(), float("nan"), "a number that is not finite"),
    (Number(), np.float64("inf"), "a number that is not finite"),
    (WEIGHTS, [0.0, 0.5, 1.0], "list instead of an array"),
    (WEIGHTS, np.zeros(3, np.float32), "an array of float32 instead of float64"),
    (WEIGHTS, np.zeros((1, 3)), r"an array of shape \(1, 3\) instead of \(3,\)"),
    (WEIGHTS, np.float64(0.5), "float64 instead of an array"),
    (WEIGHTS, np.ma.zeros(3), "MaskedArray instead of an array"),
    (WEIGHTS, np.array([0.0, -5e-324, 1.0]), "a number outside 0.0 to 1.0"),
    (WEIGHTS, np.array([0.0, 1.0, np.nextafter(1, 2)]), "a number outside 0.0 to 1.0"),
    (WEIGHTS, np.array([0.0, np.nan, 1.0]), "a number outside 0.0 to 1.0"),
    (Array(np.float64, (2,), finite=True), np.array([0.0, np.inf]), "a number that is not finite"),
    (Array(np.float64, (2,), finite=True), np.array([0.0, np.nan]), "a number that is not finite"),
    (
        Array(np.uint32, (1,), high=2**31 - 2),
        np.array([2**31 - 1], np.uint32),
        "a number outside None to 2147483646",
    ),
    (Array(np.int64, (None,)), np.zeros((2, 2), np.int64), "an array of shape"),
    (Names(("a", "b")), ("a",), "tuple instead of a list of names"),
    (Names(("a", "b")), ["a", "a"], "a name twice"),
    (Names(("a", "b")), ["c"], "a name from outside"),
    (Names(("a", "b")), [["a"]], "a name that is no text"),
    (Names(("a", "b"), size=2), ["a"], "1 names instead of 2"),
    (Table(("a", "b"), Raw(1)), {"a": b"1"}, "no entry for b"),
    (Table(("a",), Raw(1)), {"a": b"1", "b": b"2"}, "an entry for an unknown name"),
    (Table(("a",), Raw(1)), {0: b"1"}, "an entry for an unknown name"),
    (Table(("a",), Raw(1)), {"a": b"12"}, "a: 2 bytes instead of 1"),
    (Table(("a",), Raw(1)), [("a", b"1")], "list instead of a dictionary"),
    (Entries({"x": Raw(1)}), {}, "entries other than x"),
    (Entries({}), {"x": b"1"}, "entries other than none"),
    (Entries({"x": Raw(1)}), None, "NoneType instead of a dictionary"),
    (Entries({"x": Raw(1)}), {"x": 1}, "x: int instead of bytes"),
    (Parts((Raw(1),)), [b"1"], "list instead of a tuple"),
    (Parts((Raw(1),)), (b"1", b"2"), "2 parts instead of 1"),
    (Parts((Raw(1), Raw(1))), (b"1", b""), "part 1: 0 bytes instead of 1"),
    (Parts((Raw(1), Raw(1)), list), (b"1", b"2"), "tuple instead of a list"),
    (Parts((Raw(1), Raw(1)), list), [b"1"], "1 parts instead of 2"),
    (Parts((Raw(1), Raw(1)), list), [b"1", 2], "part 1: int instead of bytes"),
    (Maybe(Raw(1)), b"", "0 bytes instead of 1"),
    (Instance(Couple, PAIR), (b"1", ("a",)), "tuple instead of a Couple"),
    (Instance(Couple, PAIR), Couple(b"", ("a",)), "left: 0 bytes instead of 1"),
    (Instance(Couple, PAIR), Couple(b"1", ["a"]), "right: list instead of a tuple of names"),
]


@pytest.mark.parametrize(("kind", "message"), RIGHT, ids=str)
def test_what_honest_parties_send_passes(kind, message):
    kind.check(message)


@pytest.mark.parametrize(("kind", "message", "why"), WRONG, ids=lambda part: repr(part)[:40])
def test_what_is_wrong_is_said(kind, message, why):
    with pytest.raises(SchemaError, match=f"^{why}"):
        kind.check(message)


KINDS = [kind for kind, _ in RIGHT]
names = st.sampled_from("abxyz")
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    arrays(
        st.sampled_from([np.float64, np.uint32, np.bool_, np.complex128]),
        array_shapes(min_dims=0, max_dims=2),
    ),
)
messages = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(names, st.integers(0, 3)), inner, max_size=3),
        st.builds(Couple, inner, inner),
    ),
    max_leaves=6,
)


@given(st.sampled_from(KINDS), messages)
def test_anything_passes_or_is_refused_and_nothing_else_is_raised(kind, message):
    with suppress(SchemaError):
        kind.check(message)
