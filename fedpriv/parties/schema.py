"""Schemas: the types, shapes, ranges and keys that a message may have.

A schema describes what honest parties send in one phase of an exchange. The gate (`parties.post`)
checks every message against it before a protocol computes with the content. A message that passes
has a safe type and size. Its meaning (a key of low order, a share of nothing) is for the protocol
to check.

>>> counts = Array(np.int64, (3,), low=0, high=9)
>>> counts.check(np.array([4, 0, 2]))
>>> counts.check(np.array([4, 0, -2]))
Traceback (most recent call last):
...
fedpriv.parties.schema.SchemaError: a number outside 0 to 9
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np


class SchemaError(ValueError):
    """A message that no honest party sends."""


class Schema(ABC):
    """What one message may be."""

    @abstractmethod
    def check(self, message: Any) -> None:
        """Raise SchemaError unless `message` fits this schema."""


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise SchemaError(problem)


def _require_type(message: Any, expected: type, name: str) -> None:
    """Subclasses do not count: their methods could be anything."""
    _require(type(message) is expected, f"{type(message).__name__} instead of {name}")


@dataclass(frozen=True)
class Raw(Schema):
    """Exactly `size` bytes."""

    size: int

    def check(self, message: Any) -> None:
        _require_type(message, bytes, "bytes")
        _require(len(message) == self.size, f"{len(message)} bytes instead of {self.size}")


@dataclass(frozen=True)
class Number(Schema):
    """A finite number."""

    def check(self, message: Any) -> None:
        if type(message) is int:
            return
        known = type(message) is float or isinstance(message, np.number)
        _require(known, f"{type(message).__name__} instead of a number")
        _require(bool(np.isfinite(message)), "a number that is not finite")


@dataclass(frozen=True)
class Array(Schema):
    """A numpy array.

    dtype: type of its elements.
    shape: sizes by dimension; None where any size is allowed.
    low: smallest allowed element; NaN is refused.
    high: largest allowed element; NaN is refused.
    finite: whether every element must be finite.
    """

    dtype: type[np.generic]
    shape: tuple[int | None, ...]
    low: float | None = None
    high: float | None = None
    finite: bool = False

    def check(self, message: Any) -> None:
        _require_type(message, np.ndarray, "an array")
        right = message.dtype == self.dtype
        _require(right, f"an array of {message.dtype} instead of {np.dtype(self.dtype)}")
        fits = len(message.shape) == len(self.shape)
        fits = fits and all(want in (None, has) for want, has in zip(self.shape, message.shape))
        _require(fits, f"an array of shape {message.shape} instead of {self.shape}")
        for bound, inside in ((self.low, np.greater_equal), (self.high, np.less_equal)):
            fits = bound is None or inside(message, bound).all()
            _require(fits, f"a number outside {self.low} to {self.high}")
        finite = not self.finite or bool(np.isfinite(message).all())
        _require(finite, "a number that is not finite")


@dataclass(frozen=True)
class Names(Schema):
    """A list or tuple of distinct names.

    within: the allowed names.
    size: how many names; None for any number.
    container: list or tuple.
    """

    within: Collection[str]
    size: int | None = None
    container: type = list

    def check(self, message: Any) -> None:
        _require_type(message, self.container, f"a {self.container.__name__} of names")
        _require(all(type(name) is str for name in message), "a name that is no text")
        _require(len(set(message)) == len(message), "a name twice")
        _require(set(message) <= set(self.within), "a name from outside")
        fits = self.size in (None, len(message))
        _require(fits, f"{len(message)} names instead of {self.size}")


@dataclass(frozen=True)
class Table(Schema):
    """A dictionary whose values all fit one schema.

    keys: the allowed keys.
    value: schema of every value.
    whole: whether every key must be there.
    """

    keys: Collection[str]
    value: Schema
    whole: bool = True

    def check(self, message: Any) -> None:
        _require_type(message, dict, "a dictionary")
        known = set(self.keys)
        _require(set(message) <= known, "an entry for an unknown name")
        missing = sorted(known - set(message)) if self.whole else []
        _require(not missing, f"no entry for {', '.join(missing[:5])}")
        for key, value in message.items():
            _check_part(str(key), self.value, value)


@dataclass(frozen=True)
class Entries(Schema):
    """A dictionary with exactly these keys, each with its own schema."""

    schemas: Mapping[str, Schema]

    def check(self, message: Any) -> None:
        _require_type(message, dict, "a dictionary")
        same = set(message) == set(self.schemas)
        _require(same, f"entries other than {', '.join(sorted(self.schemas)) or 'none'}")
        for key, schema in self.schemas.items():
            _check_part(key, schema, message[key])


@dataclass(frozen=True)
class Parts(Schema):
    """A tuple or list, with a schema for each part."""

    parts: tuple[Schema, ...]
    container: type = tuple

    def check(self, message: Any) -> None:
        _require_type(message, self.container, f"a {self.container.__name__}")
        size = len(self.parts)
        _require(len(message) == size, f"{len(message)} parts instead of {size}")
        for place, (schema, part) in enumerate(zip(self.parts, message)):
            _check_part(f"part {place}", schema, part)


@dataclass(frozen=True)
class Maybe(Schema):
    """None, or a message that fits `schema`."""

    schema: Schema

    def check(self, message: Any) -> None:
        if message is not None:
            self.schema.check(message)


@dataclass(frozen=True)
class Instance(Schema):
    """A registered dataclass, with a schema for each field."""

    cls: type
    schemas: Mapping[str, Schema]

    def check(self, message: Any) -> None:
        _require_type(message, self.cls, f"a {self.cls.__name__}")
        for name in _names_of_fields(self.cls):
            _check_part(name, self.schemas[name], getattr(message, name))


@cache
def _names_of_fields(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def _check_part(place: str, schema: Schema, message: Any) -> None:
    try:
        schema.check(message)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None
