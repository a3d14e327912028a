"""A digest of settings: equal for equal settings, in every process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def settings_digest(*settings: Any) -> bytes:
    """SHA-256 of components and plain values.

    Frozen dataclasses count with their class and fields, collections with their items, arrays with
    their bytes, and any other object with its class alone.
    """
    state = hashlib.sha256()
    for part in _parts(settings):
        raw = part.encode()
        state.update(len(raw).to_bytes(8, "little") + raw)
    return state.digest()


def _parts(value: Any) -> Iterator[str]:
    cls = type(value)
    yield f"{cls.__module__}.{cls.__qualname__}"
    if value is None or cls in (bool, int, float, str, bytes):
        yield repr(value)
    elif isinstance(value, np.ndarray | np.generic):
        array = np.ascontiguousarray(value)
        yield f"{array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    elif is_dataclass(value):
        for field in fields(value):
            if field.init and field.compare:
                yield field.name
                yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        yield str(len(value))
        for key in sorted(value, key=repr):
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, tuple | list | set | frozenset):
        yield str(len(value))
        ordered = value if isinstance(value, tuple | list) else sorted(value, key=repr)
        for item in ordered:
            yield from _parts(item)
