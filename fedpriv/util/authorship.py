"""Which components are the framework's, and which are the work of another author."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType


def is_built_in(kind: type | FunctionType) -> bool:
    """Whether a class or function is the framework's own."""
    return kind.__module__.startswith("fedpriv.")


def all_built_in(*parts: object) -> bool:
    """Whether all parts of a certificate, and what they consist of, are of the framework's own
    classes. What others say of a distance, a sample, a noise or an observer is their word.

    >>> from fedpriv.aggregation.plain import Plain
    >>> all_built_in(Plain(), None), all_built_in(Plain(), object())
    (True, False)
    """
    return all(
        part is None or (is_built_in(type(part)) and all_built_in(*components(part)))
        for part in parts
    )


def components(part: object) -> Iterator[object]:
    """The components that a component consists of."""
    for one in fields(part) if is_dataclass(part) else ():
        value = getattr(part, one.name)
        if is_dataclass(value):
            yield value
