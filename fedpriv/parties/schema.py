"""What a message may hold: types, shapes, ranges and keys, checked before anybody computes with it.

A schema says what honest parties send in one phase of an exchange. Whatever passes is safe to
compute with as far as types and sizes go; what it means (a key of low order, a share of nothing) is
for the protocol to find out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


class SchemaError(ValueError):
    """A message that no honest party sends."""


class Schema(ABC):
    """One kind of message."""

    @abstractmethod
    def check(self, message: Any) -> None:
        """Raise SchemaError unless `message` is of this kind."""


def _kind(message: Any) -> str:
    return type(message).__name__


@dataclass(frozen=True)
class Raw(Schema):
    """Exactly `size` bytes."""

    size: int

    def check(self, message: Any) -> None:
        if type(message) is not bytes:
            raise SchemaError(f"{_kind(message)} instead of bytes")
        if len(message) != self.size:
            raise SchemaError(f"{len(message)} bytes instead of {self.size}")


@dataclass(frozen=True)
class Number(Schema):
    """A number that is neither infinite nor NaN."""

    def check(self, message: Any) -> None:
        right = type(message) in (int, float) or isinstance(message, np.number)
        if not right:
            raise SchemaError(f"{_kind(message)} instead of a number")
        if type(message) is not int and not np.isfinite(message):
            raise SchemaError("a number that is not finite")


@dataclass(frozen=True)
class Array(Schema):
    """A numpy array.

    shape: None for a length that is not known before.
    low, high: of every element; NaN is neither.
    finite: of floating-point ones.
    """

    dtype: type[np.generic]
    shape: tuple[int | None, ...]
    low: float | None = None
    high: float | None = None
    finite: bool = False

    def check(self, message: Any) -> None:
        if type(message) is not np.ndarray:
            raise SchemaError(f"{_kind(message)} instead of an array")
        right = message.dtype == self.dtype
        if not right:
            raise SchemaError(f"an array of {message.dtype} instead of {np.dtype(self.dtype)}")
        fits = len(message.shape) == len(self.shape)
        fits = fits and all(want in (None, has) for want, has in zip(self.shape, message.shape))
        if not fits:
            raise SchemaError(f"an array of shape {message.shape} instead of {self.shape}")
        for bound, inside in ((self.low, np.greater_equal), (self.high, np.less_equal)):
            if bound is not None and not inside(message, bound).all():
                raise SchemaError(f"a number outside {self.low} to {self.high}")
        if self.finite and not np.isfinite(message).all():
            raise SchemaError("a number that is not finite")


@dataclass(frozen=True)
class Names(Schema):
    """A list or tuple (`kind`) of different names out of `within`: `size` of them, any number for
    None."""

    within: Collection[str]
    size: int | None = None
    kind: type = list

    def check(self, message: Any) -> None:
        right = type(message) is self.kind
        if not right:
            raise SchemaError(f"{_kind(message)} instead of a {self.kind.__name__} of names")
        if not all(type(name) is str for name in message):
            raise SchemaError("a name that is no text")
        if len(set(message)) != len(message):
            raise SchemaError("a name twice")
        if not set(message) <= set(self.within):
            raise SchemaError("a name from outside")
        if self.size is not None and len(message) != self.size:
            raise SchemaError(f"{len(message)} names instead of {self.size}")


@dataclass(frozen=True)
class Table(Schema):
    """A dictionary with keys out of `keys` (all of them if `whole`), every value of the kind
    `value`."""

    keys: Collection[str]
    value: Schema
    whole: bool = True

    def check(self, message: Any) -> None:
        if type(message) is not dict:
            raise SchemaError(f"{_kind(message)} instead of a dictionary")
        known = set(self.keys)
        if not set(message) <= known:
            raise SchemaError("an entry for an unknown name")
        if self.whole:
            missing = sorted(known - set(message))
            if missing:
                raise SchemaError(f"no entry for {', '.join(missing[:5])}")
        for key, value in message.items():
            _within(str(key), self.value, value)


@dataclass(frozen=True)
class Entries(Schema):
    """A dictionary with exactly these keys, each with a kind of its own."""

    kinds: Mapping[str, Schema]

    def check(self, message: Any) -> None:
        if type(message) is not dict:
            raise SchemaError(f"{_kind(message)} instead of a dictionary")
        if set(message) != set(self.kinds):
            raise SchemaError(f"entries other than {', '.join(sorted(self.kinds)) or 'none'}")
        for key, kind in self.kinds.items():
            _within(key, kind, message[key])


@dataclass(frozen=True)
class Row(Schema):
    """A tuple whose parts are of these kinds."""

    parts: tuple[Schema, ...]

    def check(self, message: Any) -> None:
        if type(message) is not tuple:
            raise SchemaError(f"{_kind(message)} instead of a tuple")
        if len(message) != len(self.parts):
            raise SchemaError(f"{len(message)} parts instead of {len(self.parts)}")
        for place, (kind, part) in enumerate(zip(self.parts, message)):
            _within(f"part {place}", kind, part)


@dataclass(frozen=True)
class Series(Schema):
    """A list of `size` messages of one kind."""

    size: int
    kind: Schema

    def check(self, message: Any) -> None:
        if type(message) is not list:
            raise SchemaError(f"{_kind(message)} instead of a list")
        if len(message) != self.size:
            raise SchemaError(f"{len(message)} parts instead of {self.size}")
        for place, part in enumerate(message):
            _within(f"part {place}", self.kind, part)


@dataclass(frozen=True)
class Maybe(Schema):
    """None, or a message of the kind."""

    kind: Schema

    def check(self, message: Any) -> None:
        if message is not None:
            self.kind.check(message)


@dataclass(frozen=True)
class Instance(Schema):
    """A registered dataclass whose fields are of these kinds."""

    cls: type
    kinds: Mapping[str, Schema]

    def check(self, message: Any) -> None:
        if type(message) is not self.cls:
            raise SchemaError(f"{_kind(message)} instead of a {self.cls.__name__}")
        for field in fields(self.cls):
            _within(field.name, self.kinds[field.name], getattr(message, field.name))


def _within(place: str, kind: Schema, message: Any) -> None:
    try:
        kind.check(message)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None
