from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from equal_values import same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedpriv.parties import messages
from fedpriv.parties.messages import DEPTH, MessageError, decode, encode, register, size_of

dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="=", sizes=(64, 128)),
)
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**4096), 2**4096),
    st.floats(),
    st.text(),
    st.binary(),
    arrays,
    arrays.filter(lambda array: array.size > 0).map(lambda array: array.flat[0]),
)
keys = st.one_of(st.text(), st.integers())
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(keys, inner)
    ),
    max_leaves=12,
)
many = settings(max_examples=50, deadline=None, derandomize=True)


@many
@given(trees)
def test_round_trip(message):
    data = encode(message)
    assert len(data) == size_of(message)
    assert same(decode(data), message)
    assert encode(decode(data)) == data


def is_a_message_or_one_error(data):
    try:
        message = decode(data)
    except MessageError:
        return
    assert encode(message) == data


@many
@given(st.binary(max_size=60))
def test_random_bytes_are_a_message_or_one_error(data):
    is_a_message_or_one_error(data)


@many
@given(trees, st.data())
def test_damaged_messages_are_a_message_or_one_error(message, data):
    whole = bytearray(encode(message))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    is_a_message_or_one_error(bytes(whole))


@many
@given(trees)
def test_every_shortened_message_is_refused(message):
    data = encode(message)
    for end in range(max(0, len(data) - 8), len(data)):
        with pytest.raises(MessageError):
            decode(data[:end])
    with pytest.raises(MessageError, match="after the end"):
        decode(data + b"N")


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"N"),
        (0, b"i\x01\0\0\0\0"),
        (-129, b"i\x02\0\0\0\x7f\xff"),
        ((True, "é"), b"t\x02\0\0\0Ts\x02\0\0\0\xc3\xa9"),
        (1.5, b"f\0\0\0\0\0\0\xf8\x3f"),
        ({"a": [b"x"]}, b"d\x01\0\0\0s\x01\0\0\0al\x01\0\0\0b\x01\0\0\0x"),
        (np.array([[1], [2]], np.uint8), b"a\x05\x02\x02\0\0\0\x01\0\0\0\x01\x02"),
    ],
)
def test_the_layout_does_not_drift(value, data):
    assert encode(value) == data


def test_layout_in_memory_does_not_matter():
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for other in (
        array.astype(">i4"),
        np.asfortranarray(array),
        np.repeat(array, 2, axis=1)[:, ::2],
    ):
        assert encode(other) == encode(array)
        assert size_of(other) == len(encode(array))
    assert decode(encode(array)).flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        1j,
        bytearray(b"x"),
        namedtuple("Pair", "a b")(1, 2),
        type("Text", (str,), {})("x"),
        {1.5: 2},
        {True: 2},
        {(1,): 2},
        "\ud800",
        np.array([object()]),
        np.array(["text"]),
        np.array([np.datetime64("2020")]),
        np.zeros(2, dtype=[("a", "i4")]),
        np.longdouble(1),
        np.ma.masked_array([1.0]),
        [{"deep": (lambda: None,)}],
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_in_the_schema_is_refused(value):
    with pytest.raises(MessageError):
        encode(value)
    with pytest.raises(MessageError):
        size_of(value)


def test_registered_dataclasses():
    @register
    @dataclass(frozen=True)
    class Point:
        x: float
        y: tuple

        def __post_init__(self):
            assert self.x >= 0, "x is negative"

    @dataclass(frozen=True)
    class Unknown:
        x: float

    data = encode([Point(1.5, (2, None))])
    assert decode(data) == [Point(1.5, (2, None))]
    assert size_of([Point(1.5, (2, None))]) == len(data)
    point = b"o\x05\0\0\0Point"
    for damaged in (
        point + encode((1.5,)),
        point + encode([1.5, ()]),
        b"o\x01\0\0\0P" + encode((1.5, ())),
    ):
        with pytest.raises(MessageError, match="registered"):
            decode(damaged)
    with pytest.raises(MessageError, match="x is negative"):
        decode(point + encode((-1.5, ())))
    with pytest.raises(MessageError, match="Unknown"):
        encode(Unknown(1.0))
    with pytest.raises(ValueError, match="two classes"):
        register(type("Point", (), {}))


def test_nesting_ends():
    loop = []
    loop.append(loop)
    with pytest.raises(MessageError, match="deep"):
        encode(loop)
    with pytest.raises(MessageError, match="deep"):
        decode(b"l\x01\0\0\0" * 10_000 + b"N")
    deepest = None
    for _ in range(DEPTH):
        deepest = [deepest]
    assert decode(encode(deepest)) == deepest
    with pytest.raises(MessageError, match="deep"):
        encode([deepest])
    with pytest.raises(MessageError, match="deep"):
        decode(b"l\x01\0\0\0" + encode(deepest))


@register
@dataclass(frozen=True)
class Nest:
    inner: object


@pytest.mark.parametrize(
    ("wrap", "begin"),
    [
        (lambda inner: {0: inner}, encode({0: None})[:-1]),
        (lambda inner: (inner,), encode((None,))[:-1]),
        (Nest, encode(Nest(None))[:-1]),
    ],
    ids=["dict", "tuple", "dataclass"],
)
def test_what_is_written_is_nested_as_deep_as_what_is_read(wrap, begin):
    """A dataclass and the tuple of its fields are two."""
    deepest, most = None, DEPTH // (2 if wrap is Nest else 1)
    for _ in range(most):
        deepest = wrap(deepest)
    data = begin * most + b"N"
    assert encode(deepest) == data
    assert decode(data) == deepest
    with pytest.raises(MessageError, match="deep"):
        encode(wrap(deepest))
    with pytest.raises(MessageError, match="deep"):
        decode(begin + data)


@pytest.mark.parametrize(
    "shape", [(1,) * DEPTH, (0, messages.LIMIT), (messages.LIMIT, 0), (2, 0, messages.LIMIT // 2)]
)
def test_shapes_at_their_limits(shape):
    assert same(decode(encode(np.zeros(shape, np.uint8))), np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "data",
    [
        b"l\xff\xff\xff\xff",
        b"b\xff\xff\xff\xff",
        b"d\x01\0\0\0Ni\x01\0\0\0\0",
        b"d\x02\0\0\0" + 2 * (b"s\0\0\0\0" + b"N"),
        b"i\0\0\0\0",
        b"i\x02\0\0\0\x01\0",
        b"a\x0b\x02" + 4 * b"\xff" + 4 * b"\xff",
        b"a\x0b\x04" + 4 * b"\0" + 12 * b"\xff",
        b"a\x0b\xff" + 255 * b"\x01\0\0\0" + 8 * b"\0",
        b"a\x63\x00",
        b"a" + bytes([len(messages.DTYPES), 0]) + 16 * b"\0",
        b"a\x00\x01\x01\0\0\0\x02",
        b"g\x05\x01\x01\0\0\0\x02",
        b"s\x01\0\0\0\xff",
        b"",
    ],
)
def test_bombs_and_second_encodings_are_refused(data):
    with pytest.raises(MessageError):
        decode(data)


def test_too_large_a_message_is_refused_without_building_it(monkeypatch):
    monkeypatch.setattr(messages, "LIMIT", 1000)
    assert decode(encode(np.zeros(120))).shape == (120,)
    for large in (
        np.zeros(126),
        b"x" * 1001,
        ["x" * 600] * 2,
        np.zeros((0, 2000)),
        np.zeros((0, 40, 40)),
    ):
        with pytest.raises(MessageError):
            encode(large)
    with pytest.raises(MessageError):
        decode(b"b\xff\x03\0\0" + b"x" * 1023)
    assert len(messages.digest_of(b"x" * 1000)) == 32
    with pytest.raises(MessageError, match="a length of 1001"):
        messages.digest_of(b"x" * 1001)
