"""Messages as bytes, with a closed set of types: reading foreign bytes can run no code, and takes
no more memory than `GROWTH` times their own length and `ALLOWANCE`.

A message is None, a bool, an int of any size, a float, a str, bytes, a tuple, list or dict (keys:
str or int) of messages, a numpy array or scalar of booleans or numbers, or a registered dataclass
of messages. Equal bytes mean equal messages: each message has exactly one encoding, `decode`
refuses all others, and types come back as they were (a tuple as a tuple, float32 as float32).

Layout: one letter for the type, then its content. Lengths and counts are 4 bytes, everything is
little-endian.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

LIMIT = 2**30
"""Largest encoded message in bytes."""

DEPTH = 32
"""Deepest nesting of tuples, lists and dicts."""

GROWTH, ALLOWANCE = 4, 2**19
"""What is read may take `GROWTH` times its own bytes and `ALLOWANCE` bytes more. Vectors, keys and
sealed shares take less; names and short arrays take a little more, and the allowance is for 10,000
silos' in one message."""

DTYPES = tuple(
    np.dtype(code)
    for code in (
        "?",
        "<i1",
        "<i2",
        "<i4",
        "<i8",
        "<u1",
        "<u2",
        "<u4",
        "<u8",
        "<f2",
        "<f4",
        "<f8",
        "<c8",
        "<c16",
    )
)
NATIVE = tuple(dtype.newbyteorder("=") for dtype in DTYPES)
"""Shared by all arrays that are read; one of its own would double what a short array takes."""

_COUNT = struct.Struct("<I").pack
_FLOAT = struct.Struct("<d").pack

_CODES = {
    own: code for code, dtype in enumerate(DTYPES) for own in (dtype, dtype.newbyteorder(">"))
}

T = TypeVar("T")
_REGISTERED: dict[str, type] = {}
_BEGINNINGS: dict[type, tuple[bytes, tuple[str, ...]]] = {}
"""How an instance's encoding begins, and the names of its fields."""


class MessageError(ValueError):
    """Not a message: a type outside the schema, too large, or bytes that no message encodes to."""


def register(cls: type[T]) -> type[T]:
    """Class decorator: instances of this dataclass, told by its name and its fields' values, may be
    in a message."""
    if _REGISTERED.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"two classes of messages are named {cls.__name__}")
    name = cls.__name__.encode()
    _BEGINNINGS[cls] = b"o" + _length(len(name)) + name, tuple(field.name for field in fields(cls))  # type: ignore[arg-type]
    return cls


def encode(message: Any) -> bytes:
    """The bytes of a message. Raises MessageError."""
    pieces = _pieces(message)
    _size(pieces)
    return b"".join(piece.tobytes() if isinstance(piece, np.ndarray) else piece for piece in pieces)


def size_of(message: Any) -> int:
    """len(encode(message)), without copying arrays. Raises MessageError when it has no encoding."""
    return _size(_pieces(message))


def digest_of(message: Any) -> bytes:
    """SHA-256 of encode(message), without copying arrays. Raises MessageError."""
    state = hashlib.sha256()
    for piece in _pieces(message):
        state.update(piece if type(piece) is bytes else np.ascontiguousarray(piece).data)
    return state.digest()


def decode(data: bytes) -> Any:
    """The message that encodes to `data`; arrays are new and writable. Raises MessageError."""
    if len(data) > LIMIT:
        raise MessageError(f"a message of more than {LIMIT} bytes")
    reader = _Reader(data)
    message = reader.message(0)
    if reader.at != len(data):
        raise MessageError("bytes after the end of a message")
    return message


Pieces = list[bytes | np.ndarray]
"""An encoding cut up; an array with the layout and byte order it is sent in stands for its
bytes.
"""


def _pieces(message: Any) -> Pieces:
    pieces: Pieces = []
    _writer(message)(message, 0, pieces)
    return pieces


def _size(pieces: Pieces) -> int:
    size = sum(piece.nbytes if isinstance(piece, np.ndarray) else len(piece) for piece in pieces)
    if size > LIMIT:
        raise MessageError(f"a message of more than {LIMIT} bytes")
    return size


Writer = Callable[[Any, int, Pieces], None]
"""Adds a message's pieces, given how many containers it is in."""


def _writer(message: Any) -> Writer:
    """By the exact type, since types come back as they were."""
    return _WRITERS.get(type(message)) or (
        _write_scalar if isinstance(message, np.generic) else _write_instance
    )


def _write_none(message: None, depth: int, pieces: Pieces) -> None:
    pieces.append(b"N")


def _write_bool(message: bool, depth: int, pieces: Pieces) -> None:
    pieces.append(b"T" if message else b"F")


def _write_int(message: int, depth: int, pieces: Pieces) -> None:
    content = _int_bytes(message)
    pieces.append(b"i" + _length(len(content)) + content)


def _write_float(message: float, depth: int, pieces: Pieces) -> None:
    pieces.append(b"f" + _FLOAT(message))


def _write_text(message: str, depth: int, pieces: Pieces) -> None:
    try:
        content = message.encode()
    except UnicodeEncodeError as error:
        raise MessageError(str(error)) from error
    pieces.append(b"s" + _length(len(content)) + content)


def _write_bytes(message: bytes, depth: int, pieces: Pieces) -> None:
    pieces.append(b"b" + _length(len(message)) + message)


def _write_items(message: tuple[Any, ...] | list[Any], depth: int, pieces: Pieces) -> None:
    pieces.append((b"t" if type(message) is tuple else b"l") + _length(len(message)))
    if message and depth == DEPTH:
        raise MessageError(f"nested more than {DEPTH} deep")
    for item in message:
        _writer(item)(item, depth + 1, pieces)


def _write_pairs(message: dict[Any, Any], depth: int, pieces: Pieces) -> None:
    for key in message:
        if type(key) not in (str, int):
            raise MessageError(f"a key of type {type(key).__name__}; allowed: str, int")
    pieces.append(b"d" + _length(len(message)))
    if message and depth == DEPTH:
        raise MessageError(f"nested more than {DEPTH} deep")
    for key, value in message.items():
        _writer(key)(key, depth + 1, pieces)
        _writer(value)(value, depth + 1, pieces)


def _write_instance(message: Any, depth: int, pieces: Pieces) -> None:
    kind = type(message)
    if kind not in _BEGINNINGS:
        raise MessageError(f"a message cannot hold {kind.__module__}.{kind.__qualname__}")
    name, names = _BEGINNINGS[kind]
    if depth == DEPTH:
        raise MessageError(f"nested more than {DEPTH} deep")
    pieces.append(name)
    _write_items(tuple(getattr(message, name) for name in names), depth + 1, pieces)


def _write_array(message: np.ndarray, depth: int, pieces: Pieces, letter: bytes = b"a") -> None:
    code = _CODES.get(message.dtype)
    if code is None:
        raise MessageError(f"an array cannot hold {message.dtype}; allowed: booleans and numbers")
    if math.prod(max(size, 1) for size in message.shape) > LIMIT:
        raise MessageError(f"an array of shape {message.shape}")
    pieces.append(letter + bytes([code, message.ndim]) + b"".join(map(_length, message.shape)))
    pieces.append(message.astype(DTYPES[code], copy=False))


def _write_scalar(message: np.generic, depth: int, pieces: Pieces) -> None:
    _write_array(np.asarray(message), depth, pieces, b"g")


_WRITERS: dict[type, Writer] = {
    type(None): _write_none,
    bool: _write_bool,
    int: _write_int,
    float: _write_float,
    str: _write_text,
    bytes: _write_bytes,
    tuple: _write_items,
    list: _write_items,
    dict: _write_pairs,
    np.ndarray: _write_array,
}


def _length(value: int) -> bytes:
    if value > LIMIT:
        raise MessageError(f"a length of {value}")
    return _COUNT(value)


def _int_bytes(value: int) -> bytes:
    """Two's complement, as short as it can be."""
    return value.to_bytes(
        (value if value >= 0 else ~value).bit_length() // 8 + 1, "little", signed=True
    )


class _Reader:
    """Takes a message off a buffer; everything that follows from a length is held against what is
    left of the buffer and of the memory, before anything is allocated."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.room = GROWTH * len(data) + ALLOWANCE

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise MessageError("a message that ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self) -> int:
        """A number of things that follow and take at least one byte each."""
        count = int.from_bytes(self.take(4), "little")
        if count > len(self.data) - self.at:
            raise MessageError("a message that ends too early")
        return count

    def pay(self, size: int, passing: int = 0) -> None:
        """Book the memory of an object, CPython's bytes;

        passing: what making it takes for a moment. Raises MessageError when so much is not left.
        """
        self.room -= size
        if self.room < passing:
            raise MessageError("a message that would take far more memory than its own bytes")

    def message(self, depth: int) -> Any:
        if depth > DEPTH:
            raise MessageError(f"nested more than {DEPTH} deep")
        letter = bytes(self.take(1))
        if letter in (b"N", b"T", b"F"):
            return {b"N": None, b"T": True, b"F": False}[letter]
        if letter == b"f":
            self.pay(24)
            return struct.unpack("<d", self.take(8))[0]
        if letter == b"i":
            return self.integer()
        if letter == b"s":
            return self.text()
        if letter == b"b":
            content = self.take(self.count())
            self.pay(33 + len(content))
            return bytes(content)
        if letter in (b"t", b"l"):
            return self.items(depth, as_tuple=letter == b"t")
        if letter == b"d":
            return self.pairs(depth)
        if letter in (b"a", b"g"):
            return self.array(scalar=letter == b"g")
        if letter == b"o":
            return self.instance(depth)
        raise MessageError(f"no type has the letter {letter!r}")

    def integer(self) -> int:
        content = self.take(self.count())
        self.pay(28 + 2 * len(content), passing=33 + len(content))
        value = int.from_bytes(content, "little", signed=True)
        if _int_bytes(value) != content:
            raise MessageError("an int with needless bytes")
        return value

    def text(self) -> str:
        content = self.take(self.count())
        self.pay(49 + len(content), passing=33 + len(content))
        plain = bytes(content)
        if not plain.isascii():  # one wide character makes all of them four bytes long
            self.pay(27 + 3 * len(content), passing=33 + 3 * len(content))
        try:
            return plain.decode()
        except UnicodeDecodeError as error:
            raise MessageError(str(error)) from error

    def items(self, depth: int, *, as_tuple: bool) -> Any:
        count = self.count()
        self.pay(72 + 8 * count, passing=72 + 8 * count if as_tuple else 0)
        items = [None] * count
        for place in range(count):
            items[place] = self.message(depth + 1)
        return tuple(items) if as_tuple else items

    def instance(self, depth: int) -> Any:
        cls = _REGISTERED.get(self.text())
        values = self.message(depth + 1)
        if cls is None or type(values) is not tuple or len(values) != len(fields(cls)):
            raise MessageError("not the fields of a registered class")
        self.pay(200 + 16 * len(values))
        try:
            return cls(*values)
        except Exception as error:
            raise MessageError(f"{cls.__name__} refuses its values: {error}") from error

    def pairs(self, depth: int) -> dict[str | int, Any]:
        count = self.count()
        pairs = dict[str | int, Any]()
        cells = (
            1 << (3 * count // 2).bit_length() if count else 0
        )  # a table is at most two thirds full
        self.pay(72 + 20 * max(cells, 8 * bool(count)), passing=10 * cells)
        for _ in range(count):
            key = self.message(depth + 1)
            if type(key) not in (str, int) or key in pairs:
                raise MessageError("a key that is not a str or int, or comes twice")
            pairs[key] = self.message(depth + 1)
        return pairs

    def array(self, scalar: bool) -> Any:
        code, dimensions = self.take(2)
        if code >= len(DTYPES) or dimensions > (0 if scalar else DEPTH):
            raise MessageError("an array of unknown type or with too many dimensions")
        shape = struct.unpack(f"<{dimensions}I", self.take(4 * dimensions))
        if math.prod(max(size, 1) for size in shape) > LIMIT:
            raise MessageError(f"an array of shape {shape}")
        content = self.take(math.prod(shape) * DTYPES[code].itemsize)
        self.pay(100 + 16 * dimensions + len(content), passing=300 + 32 * dimensions)
        flat = np.frombuffer(content, DTYPES[code])
        if code == 0 and flat.view(np.uint8).max(initial=0) > 1:
            raise MessageError("a boolean that is neither 0 nor 1")
        array = flat.reshape(shape).astype(NATIVE[code])
        return array[()] if scalar else array
