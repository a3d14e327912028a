"""Descriptions of parties as data, for parties in other processes.

A description is made of dataclasses, arrays, tensors and plain values. It travels as a JSON text,
in which dataclasses stand by name, and a list of arrays. Who reads it imports the named classes
from its own disk and creates instances from their fields. It never unpickles, and calls nothing but
dataclasses and enumerations. Importing a module runs it, so a module that is not loaded yet is
looked for first: its source must define the class, and it must not be of Python itself.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.errors import ConfigError
from fedpriv.parties.party import PartySpec

if TYPE_CHECKING:
    import torch

Described = tuple[str, list[Any]]
"""A JSON text, and the arrays and scalars that it refers to by place; a message."""


def describe(spec: PartySpec, party: str) -> Described:
    """The description of a party as a message. Raises ConfigError for an object that has no place
    in one."""
    writer = _Writer(party)
    return json.dumps(writer.node(spec, "")), writer.arrays


def restore(described: Any) -> PartySpec:
    """The party's description from a message. Raises ValueError for anything else."""
    if not _is_described(described):
        raise ValueError("not a description of a party")
    text, arrays = described
    try:
        spec = _Reader(arrays).value(json.loads(text))
    except (RecursionError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a description of a party ({error})") from error
    if not isinstance(spec, PartySpec):
        raise ValueError(f"{type(spec).__name__} is no description of a party")
    return spec


def _is_described(message: Any) -> bool:
    pair = type(message) is tuple and len(message) == 2
    return pair and type(message[0]) is str and type(message[1]) is list


class _Writer:
    """Writes one description.

    party: name of the party, for errors.
    """

    def __init__(self, party: str) -> None:
        self.party = party
        self.arrays: list[Any] = []

    def node(self, value: Any, place: str) -> Any:
        """What stands for a value in the text. Types must be exact, since they come back
        unchanged."""
        cls = type(value)
        if value is None or cls in (bool, int, float, str):
            return value
        if cls is list:
            return [self.node(one, f"{place}[{at}]") for at, one in enumerate(value)]
        if cls in (tuple, set, frozenset):
            return {
                cls.__name__: [self.node(one, f"{place}[{at}]") for at, one in enumerate(value)]
            }
        if cls is dict:
            pairs = value.items()
            return {
                "dict": [
                    [self.node(each, f"{place}[{key!r}]") for each in (key, one)]
                    for key, one in pairs
                ]
            }
        if cls is bytes:
            return {"bytes": value.hex()}
        if isinstance(value, np.ndarray | np.generic):
            return {"array": self._place(value)}
        if isinstance(value, Path):
            return {"path": str(value)}
        if isinstance(value, Enum):
            return {"enum": self._class(cls, place), "name": value.name}
        if _is_tensor(value):
            return {"tensor": self._place(value.detach().cpu().numpy())}
        if is_dataclass(cls):
            own = {f.name: getattr(value, f.name) for f in fields(cls) if f.init}
            nodes = {name: self.node(one, f"{place}.{name}") for name, one in own.items()}
            return {"class": self._class(cls, place), "fields": nodes}
        raise self._refused(cls, place, "has no place in a party's description")

    def _place(self, array: Any) -> int:
        self.arrays.append(array)
        return len(self.arrays) - 1

    def _class(self, cls: type, place: str) -> str:
        if cls.__module__ == "__main__" or "<" in cls.__qualname__:
            raise self._refused(cls, place, "stands in no module that other processes can import")
        return f"{cls.__module__}:{cls.__qualname__}"

    def _refused(self, cls: type, place: str, why: str) -> ConfigError:
        named = f"{cls.__module__}.{cls.__qualname__}"
        return ConfigError("engine", "ray", f"{named} {why} ({self.party}{place})")


class _Reader:
    """Reads one description.

    arrays: what its text refers to by place.
    """

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays

    def value(self, node: Any) -> Any:
        """The value that a node stands for."""
        if type(node) is list:
            return [self.value(one) for one in node]
        if type(node) is not dict:
            return node
        kind = next(iter(node), "")
        return _KINDS[kind](self, node)

    def array(self, place: Any) -> Any:
        """An array, at its place."""
        array = self.arrays[place]
        if not isinstance(array, np.ndarray | np.generic):
            raise ValueError("a description refers to something that is no array")
        return array

    def tensor(self, place: Any) -> torch.Tensor:
        """A tensor with its own memory."""
        import torch

        return torch.from_numpy(self.array(place))

    def instance(self, node: dict[str, Any]) -> Any:
        """An instance of a dataclass."""
        cls = _located(node["class"])
        if not is_dataclass(cls):
            raise ValueError(f"{node['class']} is no dataclass")
        return cls(**{name: self.value(one) for name, one in node["fields"].items()})

    def member(self, node: dict[str, Any]) -> Any:
        """A member of an enumeration."""
        cls = _located(node["enum"])
        if not issubclass(cls, Enum):
            raise ValueError(f"{node['enum']} is no enumeration")
        return cls[node["name"]]


_KINDS: dict[str, Callable[[_Reader, dict[str, Any]], Any]] = {
    "tuple": lambda reader, node: tuple(map(reader.value, node["tuple"])),
    "set": lambda reader, node: set(map(reader.value, node["set"])),
    "frozenset": lambda reader, node: frozenset(map(reader.value, node["frozenset"])),
    "dict": lambda reader, node: {
        reader.value(key): reader.value(one) for key, one in node["dict"]
    },
    "bytes": lambda reader, node: bytes.fromhex(node["bytes"]),
    "array": lambda reader, node: reader.array(node["array"]),
    "path": lambda reader, node: Path(node["path"]),
    "tensor": lambda reader, node: reader.tensor(node["tensor"]),
    "enum": lambda reader, node: reader.member(node),
    "class": lambda reader, node: reader.instance(node),
}


def _located(path: str) -> type:
    """The class that a path names. Raises ValueError for what is no class."""
    module, _, name = path.partition(":")
    if module not in sys.modules and not _defines(module, name):
        raise ValueError(f"{path} cannot be imported (no module defines it)")
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:  # of the module's own code
        raise ValueError(f"{path} cannot be imported ({error})") from error
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        raise ValueError(f"{path} is no class")
    return found


def _defines(module: str, name: str) -> bool:
    """Whether the source of a module defines the class `name`. Runs nothing."""
    top, *rest = module.split(".")
    if top in sys.stdlib_module_names or "" in (top, *rest) or rest[-1:] == ["__main__"]:
        return False
    try:
        spec: ModuleSpec | None = find_spec(top)
        for depth, _ in enumerate(rest, start=2):
            inside = spec.submodule_search_locations if spec is not None else None
            full = ".".join([top, *rest][:depth])
            spec = PathFinder.find_spec(full, inside) if inside is not None else None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            return False
        body: list[ast.stmt] = ast.parse(Path(spec.origin).read_bytes()).body
    except (ImportError, ValueError, SyntaxError, OSError, RecursionError):
        return False
    for part in name.split("."):
        found = [one for one in body if isinstance(one, ast.ClassDef) and one.name == part]
        if not found:
            return False
        body = found[-1].body
    return True


def _is_tensor(value: Any) -> bool:
    """Whether a value is a plain tensor. A process that has not loaded torch has none."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) is torch.Tensor
