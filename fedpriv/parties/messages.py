"""Messages as bytes.

The set of types is closed: reading foreign bytes runs no code. Reading takes at most `GROWTH` times
the bytes' length and `ALLOWANCE` of memory, since the number of values is limited.

A message is None, a bool, an int of any size, a float, a str, bytes, a tuple, list or dict (keys:
str or int) of messages, a numpy array or scalar of booleans or numbers, or a registered dataclass
of messages. Each message has exactly one encoding, and `decode` refuses all others, so that equal
bytes mean equal messages. Types come back unchanged: a tuple as a tuple, float32 as float32.

Layout: one letter for the type, then its content. Lengths and counts take 4 bytes. Everything is
little-endian.

>>> decode(encode(("hello", [1, 2.5])))
('hello', [1, 2.5])
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

LIMIT = 2**30
"""Largest encoded message in bytes."""

DEPTH = 32
"""Deepest nesting of tuples, lists and dicts."""

VALUES, VALUE_BYTES = 2**16, 8
"""A message may hold `VALUES` values, and one more for each `VALUE_BYTES` of its bytes: far more
than honest parties send, whose vectors are arrays."""

GROWTH, ALLOWANCE = 32, 2**24
"""What that means in memory: no value takes more than 256 bytes besides its own."""

_NAMES = ("?", "<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8")
DTYPES = tuple(map(np.dtype, (*_NAMES, "<c16")))
NATIVE = tuple(dtype.newbyteorder("=") for dtype in DTYPES)
"""Shared by all arrays that are read: an own one would double the memory of a short array."""

SHORT = 64
"""Characters of texts whose encoding is kept."""

ENDS = "the message ends too early"

_COUNT = struct.Struct("<I").pack
_FLOAT = struct.Struct("<d").pack

_CODES = {
    own: code for code, dtype in enumerate(DTYPES) for own in (dtype, dtype.newbyteorder(">"))
}

T = TypeVar("T")
_REGISTERED: dict[str, type] = {}
_PREFIXES: dict[type, tuple[bytes, tuple[str, ...]]] = {}
"""The first bytes of an instance's encoding, and the names of its fields."""


class MessageError(ValueError):
    """Not a message: an unknown type, too large, or bytes that are no message's encoding."""


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise MessageError(problem)


def register(cls: type[T]) -> type[T]:
    """Class decorator: messages may hold instances of this dataclass, as its name and the values of
    its fields."""
    if _REGISTERED.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"two classes of messages are named {cls.__name__}")
    name = cls.__name__.encode()
    _PREFIXES[cls] = _sized(b"o", name), tuple(field.name for field in fields(cls))  # type: ignore[arg-type]
    return cls


def encode(message: Any) -> bytes:
    """The bytes of a message. Raises MessageError."""
    pieces = _pieces(message)
    _size(pieces)
    return b"".join(piece.tobytes() if isinstance(piece, np.ndarray) else piece for piece in pieces)


def size_of(message: Any, *, depth: int = 0) -> int:
    """len(encode(message)), without copying arrays. Raises MessageError when it has no encoding.

    depth: containers around the message.
    """
    if type(message) is np.ndarray and message.dtype in _CODES and depth <= DEPTH:
        _require_shape(message.shape)
        return _limited(3 + 4 * message.ndim + message.nbytes)
    return _size(_pieces(message, depth))


def digest_of(message: Any) -> bytes:
    """SHA-256 of encode(message), without copying arrays. Raises MessageError."""
    state = hashlib.sha256()
    small: list[bytes] = []
    for piece in _pieces(message):
        if isinstance(piece, bytes):
            small.append(piece)
        else:
            state.update(b"".join(small))
            small = []
            state.update(np.ascontiguousarray(piece).data)
    state.update(b"".join(small))
    return state.digest()


def decode(data: bytes) -> Any:
    """The message that encodes to `data`; arrays are new and writable. Raises MessageError."""
    _limited(len(data))
    reader = _Reader(data)
    message = reader.message(0)
    _require(reader.at == len(data), "bytes after the end of a message")
    return message


Pieces = list[bytes | np.ndarray]
"""An encoding in pieces. An array, in the layout and byte order of the message, stands for its
bytes."""


def _pieces(message: Any, depth: int = 0) -> Pieces:
    pieces: Pieces = []
    _write(message, depth, pieces)
    return pieces


def _size(pieces: Pieces) -> int:
    return _limited(
        sum(piece.nbytes if isinstance(piece, np.ndarray) else len(piece) for piece in pieces)
    )


def _limited(size: int) -> int:
    _require(size <= LIMIT, f"a message of more than {LIMIT} bytes")
    return size


def _write(message: Any, depth: int, pieces: Pieces) -> None:
    """Append the pieces of a message that is inside `depth` containers. Types must be exact, since
    they come back unchanged."""
    cls = type(message)
    if cls in _SCALARS:
        pieces.append(_SCALARS[cls](message))
    elif cls in (tuple, list):
        _write_items(message, depth, pieces)
    elif cls is dict:
        for key in message:
            if type(key) not in (str, int):
                raise MessageError(f"a key of type {type(key).__name__}; allowed: str, int")
        _open_container(b"d", len(message), depth, pieces)
        for pair in message.items():
            for item in pair:
                _write(item, depth + 1, pieces)
    elif cls is np.ndarray:
        _write_array(message, b"a", pieces)
    elif isinstance(message, np.generic):
        _write_array(np.asarray(message), b"g", pieces)
    elif cls in _PREFIXES:
        prefix, names = _PREFIXES[cls]
        _require_depth(depth)
        pieces.append(prefix)
        _write_items(tuple(getattr(message, name) for name in names), depth + 1, pieces)
    else:
        raise MessageError(f"a message cannot hold {cls.__module__}.{cls.__qualname__}")


def _write_items(items: tuple[Any, ...] | list[Any], depth: int, pieces: Pieces) -> None:
    _open_container(b"t" if type(items) is tuple else b"l", len(items), depth, pieces)
    for item in items:
        _write(item, depth + 1, pieces)


def _open_container(letter: bytes, length: int, depth: int, pieces: Pieces) -> None:
    pieces.append(letter + _length(length))
    if length:
        _require_depth(depth)


def _require_depth(depth: int) -> None:
    _require(depth < DEPTH, f"nested more than {DEPTH} deep")


def _write_array(message: np.ndarray, letter: bytes, pieces: Pieces) -> None:
    code = _CODES.get(message.dtype)
    if code is None:
        raise MessageError(f"an array cannot hold {message.dtype}; allowed: booleans and numbers")
    _require_shape(message.shape)
    pieces.append(letter + bytes([code, message.ndim]) + b"".join(map(_length, message.shape)))
    pieces.append(message.astype(DTYPES[code], copy=False))


def _require_shape(shape: tuple[int, ...]) -> None:
    _require(math.prod(max(size, 1) for size in shape) <= LIMIT, f"an array of shape {shape}")


@lru_cache(maxsize=1024)
def _text(text: str) -> bytes:
    """The encoding of a text; the names of parties come again and again."""
    try:
        return _sized(b"s", text.encode())
    except UnicodeEncodeError as error:
        raise MessageError(str(error)) from error


_SCALARS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda message: b"N",
    bool: lambda message: b"T" if message else b"F",
    int: lambda message: _sized(b"i", _int_bytes(message)),
    float: lambda message: b"f" + _FLOAT(message),
    str: lambda message: _text(message) if len(message) <= SHORT else _text.__wrapped__(message),
    bytes: lambda message: _sized(b"b", message),
}


def _sized(letter: bytes, content: bytes) -> bytes:
    return letter + _length(len(content)) + content


def _length(value: int) -> bytes:
    _require(value <= LIMIT, f"a length of {value}")
    return _COUNT(value)


def _int_bytes(value: int) -> bytes:
    """Two's complement, as short as possible."""
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(length, "little", signed=True)


class _Reader:
    """Reads a message from a buffer. Before anything is allocated, each length is compared with the
    rest of the buffer."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.at = 0
        self.values = VALUES + len(data) // VALUE_BYTES

    def take(self, size: int) -> memoryview:
        _require(size <= len(self.data) - self.at, ENDS)
        self.at += size
        return self.data[self.at - size : self.at]

    def count(self) -> int:
        """The number of items that follow; each takes at least one byte."""
        count = int.from_bytes(self.take(4), "little")
        _require(count <= len(self.data) - self.at, ENDS)
        return count

    def message(self, depth: int) -> Any:
        _require_depth(depth - 1)
        self.values -= 1
        _require(self.values >= 0, "a message of too many values for its bytes")
        letter = bytes(self.take(1))
        _require(letter in _READERS, f"no type has the letter {letter!r}")
        return _READERS[letter](self, depth)

    def integer(self) -> int:
        content = self.take(self.count())
        value = int.from_bytes(content, "little", signed=True)
        _require(_int_bytes(value) == content, "an int with needless bytes")
        return value

    def text(self) -> str:
        try:
            return str(self.take(self.count()), "utf-8")
        except UnicodeDecodeError as error:
            raise MessageError(str(error)) from error

    def items(self, depth: int, *, as_tuple: bool) -> Any:
        items = [self.message(depth + 1) for _ in range(self.count())]
        return tuple(items) if as_tuple else items

    def instance(self, depth: int) -> Any:
        cls = _REGISTERED.get(self.text())
        values = self.message(depth + 1)
        if cls is None or type(values) is not tuple or len(values) != len(fields(cls)):
            raise MessageError("not the fields of a registered class")
        try:
            return cls(*values)
        except Exception as error:
            raise MessageError(f"{cls.__name__} refuses its values: {error}") from error

    def pairs(self, depth: int) -> dict[str | int, Any]:
        pairs = dict[str | int, Any]()
        for _ in range(self.count()):
            key = self.message(depth + 1)
            new = type(key) in (str, int) and key not in pairs
            _require(new, "a key that is not a str or int, or comes twice")
            pairs[key] = self.message(depth + 1)
        return pairs

    def array(self, scalar: bool) -> Any:
        code, dimensions = self.take(2)
        known = code < len(DTYPES) and dimensions <= (0 if scalar else DEPTH)
        _require(known, "an array of unknown type or with too many dimensions")
        shape = struct.unpack(f"<{dimensions}I", self.take(4 * dimensions))
        _require_shape(shape)
        content = self.take(math.prod(shape) * DTYPES[code].itemsize)
        flat = np.frombuffer(content, DTYPES[code])
        binary = code != 0 or bool(flat.view(np.uint8).max(initial=0) <= 1)
        _require(binary, "a boolean that is neither 0 nor 1")
        array = flat.reshape(shape).astype(NATIVE[code])
        return array[()] if scalar else array


_READERS: dict[bytes, Callable[[_Reader, int], Any]] = {
    b"N": lambda reader, depth: None,
    b"T": lambda reader, depth: True,
    b"F": lambda reader, depth: False,
    b"f": lambda reader, depth: struct.unpack("<d", reader.take(8))[0],
    b"i": lambda reader, depth: reader.integer(),
    b"s": lambda reader, depth: reader.text(),
    b"b": lambda reader, depth: bytes(reader.take(reader.count())),
    b"t": lambda reader, depth: reader.items(depth, as_tuple=True),
    b"l": lambda reader, depth: reader.items(depth, as_tuple=False),
    b"d": lambda reader, depth: reader.pairs(depth),
    b"a": lambda reader, depth: reader.array(scalar=False),
    b"g": lambda reader, depth: reader.array(scalar=True),
    b"o": lambda reader, depth: reader.instance(depth),
}
