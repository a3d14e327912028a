"""Numbers, strings and integer arrays in a pickle, read without unpickling.

A pickle is a program, and even one that calls only numpy can make arrays of pointers. This reader
knows the few instructions that dictionaries of such values need. It calls nothing that the file
names, and refuses every other instruction.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

LITERALS: tuple[str, ...] = (
    "BININT",
    "BININT1",
    "BININT2",
    "INT",
    "LONG",
    "LONG1",
    "BINSTRING",
    "SHORT_BINSTRING",
)
LITERALS += ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE")
LITERALS += ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8")
"""Instructions that push their own argument."""
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
PUTS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE")
GETS = ("GET", "BINGET", "LONG_BINGET")
IGNORED = ("PROTO", "FRAME", "STOP")
INTEGERS = ("u1", "i1", "i2", "i4", "i8")
"""Types of elements of an array, in little-endian order."""
MARK = object()


def read_pickled_numbers(raw: bytes) -> dict[str, Any]:
    """The dictionary in a pickle of protocol 0 to 4. Its values are numbers, strings, bytes,
    integer arrays, and lists, tuples or dictionaries of them.

    Raises ValueError for any other content.
    """
    reader = _Reader()
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            reader.step(opcode.name, argument)
        [found] = reader.stack
    except (LookupError, TypeError) as error:
        raise ValueError(f"not a pickled dictionary ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a pickled dictionary")
    return found


@dataclass
class _Array:
    """An array that the file describes: first empty, then with its state."""

    content: np.ndarray | None = None

    def build(self, state: tuple[Any, ...]) -> None:
        """state: version, shape, type, whether by columns, bytes."""
        _, shape, element, by_columns, raw = state
        raw = raw.encode("latin-1") if isinstance(raw, str) else raw
        sensible = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
        sensible = sensible and isinstance(element, _Element) and isinstance(raw, bytes)
        if not sensible or by_columns or math.prod(shape) * element.size != len(raw):
            raise ValueError("contains an array whose size, order or type is wrong")
        self.content = np.frombuffer(raw, f"<{element.code}").reshape(shape)


@dataclass
class _Element:
    """The type of an array's elements."""

    code: str

    def __post_init__(self) -> None:
        if self.code not in INTEGERS:
            raise ValueError(f"contains an array of type {self.code!r:.20}, not of integers")

    @property
    def size(self) -> int:
        return int(self.code[1:])

    def build(self, state: tuple[Any, ...]) -> None:
        """state: version, byte order, and what only other types have."""
        if state[1] not in ("<", "|", b"<", b"|"):
            raise ValueError("contains an array of another byte order")


def _empty_array(*arguments: Any) -> _Array:
    return _Array()


def _element(code: Any, *arguments: Any) -> _Element:
    return _Element(_text(code))


def _encoded(text: Any, encoding: Any) -> bytes:
    """Bytes, as Python 3 writes them for Python 2."""
    if not isinstance(text, str) or encoding != "latin1":
        raise ValueError("contains bytes of another encoding")
    return text.encode("latin-1")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _empty_array,
    "numpy._core.multiarray _reconstruct": _empty_array,
    "numpy ndarray": _empty_array,
    "numpy dtype": _element,
    "_codecs encode": _encoded,
}
"""What numpy's own pickles of arrays call, and what this reader does instead."""


@dataclass
class _Reader:
    """The state of reading.

    stack: values that later instructions use.
    memo: values that the file repeats, by number.
    """

    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def step(self, name: str, argument: Any) -> None:
        """Follow one instruction. Raises ValueError for one that numbers do not need."""
        if name in LITERALS:
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in PUTS:
            self.memo[len(self.memo) if name == "MEMOIZE" else int(argument)] = self.stack[-1]
        elif name in GETS:
            self.stack.append(self.memo[int(argument)])
        elif name == "GLOBAL":
            self.stack.append(_function(argument))
        elif name not in IGNORED:
            if name not in STEPS:
                raise ValueError(f"contains the instruction {name}, which numbers do not need")
            STEPS[name](self)

    def pop(self, count: int) -> list[Any]:
        """The last `count` values."""
        if len(self.stack) < count:
            raise ValueError("ends in the middle of a value")
        values = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return values

    def pop_to_mark(self) -> list[Any]:
        """The values after the last mark."""
        place = len(self.stack) - 1
        while place >= 0 and self.stack[place] is not MARK:
            place -= 1
        values = self.pop(len(self.stack) - 1 - place)
        self.pop(1)
        return values

    def extend_dict(self, values: list[Any]) -> None:
        """Add keys and values in turn to the dictionary that is last."""
        for key, value in zip(values[::2], values[1::2], strict=True):
            _require(self.stack[-1], dict)[_text(key)] = _plain(value)

    def extend_list(self, values: list[Any]) -> None:
        """Add values to the list that is last."""
        _require(self.stack[-1], list).extend(map(_plain, values))

    def call(self) -> None:
        """Call one of `FUNCTIONS`."""
        function, arguments = self.pop(2)
        if function not in FUNCTIONS.values():
            raise ValueError("calls what is not a function of numpy")
        self.stack.append(function(*_require(arguments, tuple)))

    def build(self) -> None:
        """Give the last value its state."""
        [state] = self.pop(1)
        _require(self.stack[-1], _Array | _Element).build(_require(state, tuple))


STEPS: dict[str, Callable[[_Reader], None]] = {
    "MARK": lambda reader: reader.stack.append(MARK),
    "EMPTY_DICT": lambda reader: reader.stack.append({}),
    "EMPTY_LIST": lambda reader: reader.stack.append([]),
    "DICT": lambda reader: _push_then(reader, {}, _Reader.extend_dict),
    "LIST": lambda reader: _push_then(reader, [], _Reader.extend_list),
    "TUPLE": lambda reader: reader.stack.append(tuple(reader.pop_to_mark())),
    "TUPLE1": lambda reader: reader.stack.append(tuple(reader.pop(1))),
    "TUPLE2": lambda reader: reader.stack.append(tuple(reader.pop(2))),
    "TUPLE3": lambda reader: reader.stack.append(tuple(reader.pop(3))),
    "SETITEM": lambda reader: reader.extend_dict(reader.pop(2)),
    "SETITEMS": lambda reader: reader.extend_dict(reader.pop_to_mark()),
    "APPEND": lambda reader: reader.extend_list(reader.pop(1)),
    "APPENDS": lambda reader: reader.extend_list(reader.pop_to_mark()),
    "STACK_GLOBAL": lambda reader: reader.stack.append(_function(" ".join(reader.pop(2)))),
    "REDUCE": _Reader.call,
    "BUILD": _Reader.build,
}
"""The other instructions."""


def _push_then(reader: _Reader, empty: Any, extend: Callable[[_Reader, list[Any]], None]) -> None:
    values = reader.pop_to_mark()
    reader.stack.append(empty)
    extend(reader, values)


def _function(name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS:
        raise ValueError(f"names {name.replace(' ', '.'):.80}, which is no array")
    return FUNCTIONS[name]


def _plain(value: Any) -> Any:
    """A finished value: an array for its description."""
    return value.content if isinstance(value, _Array) else value


def _text(value: Any) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return str(_require(text, str))


def _require(value: Any, expected: Any) -> Any:
    if not isinstance(value, expected):
        raise ValueError(f"contains a {type(value).__name__} where another value belongs")
    return value
