"""Descriptions of parties as messages, for parties in other processes.

A description is made of dataclasses, enumerations, arrays, tensors and plain values. Plain values
and arrays are messages already. Anything else is a tuple whose first item says what it is: "tuple",
"dict" and so on, or the path of a class. Who reads it imports the named classes from its own disk
and creates instances from their fields. It never unpickles, and calls nothing but dataclasses and
enumerations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.errors import ConfigError
from fedpriv.parties.party import PartySpec

PLAIN = (type(None), bool, int, float, str, bytes)
LISTS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}


def restore(described: Any) -> PartySpec:
    """The party's description from a message. Raises ValueError for anything else."""
    try:
        spec = _value(described)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a description of a party ({error})") from error
    if not isinstance(spec, PartySpec):
        raise ValueError(f"{type(spec).__name__} is no description of a party")
    return spec


def describe(value: Any, place: str) -> Any:
    """What stands for a party's description, or for a value in one, in a message. Types must be
    exact, since they come back unchanged. Raises ConfigError for an object that has no place there.

    place: name of the party, or place of the value, for errors.
    """
    cls = type(value)
    if cls in PLAIN or isinstance(value, np.ndarray | np.generic):
        return value
    if cls in LISTS.values():
        return cls.__name__, [describe(one, f"{place}[{at}]") for at, one in enumerate(value)]
    if cls is dict:
        pairs = [(key, f"{place}[{key!r}]") for key in value]
        items = [(describe(key, at), describe(value[key], at)) for key, at in pairs]
        return "dict", items
    if isinstance(value, Path):
        return "path", str(value)
    if isinstance(value, Enum):
        return _path(cls, place), value.name
    if _is_tensor(value):
        return "tensor", value.detach().cpu().numpy()
    if is_dataclass(cls):
        names = [field.name for field in fields(cls) if field.init]
        own = {name: describe(getattr(value, name), f"{place}.{name}") for name in names}
        return _path(cls, place), own
    raise _refusal(cls, place, "has no place in a party's description")


def _path(cls: type, place: str) -> str:
    if cls.__module__ == "__main__" or "<" in cls.__qualname__:
        raise _refusal(cls, place, "stands in no module that other processes can import")
    return f"{cls.__module__}:{cls.__qualname__}"


def _refusal(cls: type, place: str, why: str) -> ConfigError:
    named = f"{cls.__module__}.{cls.__qualname__}"
    return ConfigError("engine", "ray", f"{named} {why} ({place})")


def _value(node: Any) -> Any:
    """The value that a part of a message stands for."""
    if type(node) is not tuple:
        return node
    if len(node) != 2:
        raise ValueError("not a part of a description")
    name, content = node
    if name in LISTS:
        return LISTS[name](map(_value, content))
    if name in _READERS:
        return _READERS[name](content)
    cls = _located(name)
    if issubclass(cls, Enum):
        return cls[content]
    if not is_dataclass(cls):
        raise ValueError(f"{name} is no dataclass")
    return cls(**{field: _value(one) for field, one in content.items()})


def _tensor(array: np.ndarray) -> Any:
    """A tensor with its own memory."""
    import torch

    return torch.from_numpy(array)


_READERS: dict[str, Callable[[Any], Any]] = {
    "dict": lambda items: {_value(key): _value(one) for key, one in items},
    "path": Path,
    "tensor": _tensor,
}


def _located(path: str) -> type:
    """The class that a path names. Raises ValueError for what is no class."""
    module, _, name = path.partition(":")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # of the module's own code
        raise ValueError(f"{path} cannot be imported ({error})") from error
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise ValueError(f"{path} is no class")
    return found


def _is_tensor(value: Any) -> bool:
    """Whether a value is a plain tensor. A process that has not loaded torch has none."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.Tensor
