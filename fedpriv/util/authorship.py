"""Which components are the framework's, and which are the work of another author."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import FunctionType


def is_built_in(kind: type | FunctionType) -> bool:
    """Whether a class or function is the framework's own: its module has it by its name. A
    decorator may copy the names of another (`functools.wraps`)."""
    if not kind.__module__.startswith("fedpriv."):
        return False
    found: object = sys.modules.get(kind.__module__)
    for name in getattr(kind, "__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found is kind


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
    """The components that a component consists of, alone or in a collection."""
    for one in fields(part) if is_dataclass(part) else ():
        value = getattr(part, one.name)
        if isinstance(value, dict):
            value = tuple(value.values())
        if not isinstance(value, (tuple, list)):
            value = (value,)
        elif not any(map(is_dataclass, set(map(type, value)))):  # long lists of numbers
            continue
        yield from filter(is_dataclass, value)
