"""What the code of a network's own classes reads besides its modules: variables, class attributes,
functions. All of it may change after the network is made, and some of it hides from a trace."""

from __future__ import annotations

import dis
import os
import random
import sys
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.nn.utils import parametrize

STARTS = "forward", "__call__", "__getattr__", "__getattribute__", "__torch_function__", "train"
"""Methods that run without being named."""
BLIND = {
    "__class__",
    "__dict__",
    "_parameters",
    "eval",
    "exec",
    "hasattr",
    "is_fx_symbolic_tracing",
    "is_fx_tracing",
    "is_tensor",
    "isinstance",
    "issubclass",
    "named_parameters",
    "parameters",
    "state_dict",
    "type",
    "vars",
}
"""Names that tell a tensor from what stands for it in a trace, or that find parameters."""
BLIND_OPERATIONS = {"MATCH_CLASS": "a class pattern", "PUSH_EXC_INFO": "with or try"}
"""Operations that do, or that catch a trace's errors."""
SEEDED: tuple[object, ...] = (
    random._inst,
    np.random.mtrand._rand,
    torch.default_generator,
)
"""The generators that modules draw from."""
LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names}
PURE_MODULES = {"math", "operator", "_operator", "builtins"}
LIBRARY = os.path.dirname(os.__file__) + os.sep
"""The folder of Python's own modules."""
SMALL = 2**16
"""Bytes of an array up to which a change of its numbers is seen."""
PLAIN = bool, int, float, complex, str, bytes, type(None)


def frozen(value: object) -> Hashable | None:
    """What `value` is, if numbers, texts and their collections say it all; else None. Collections
    of other types may have attributes, too."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, dict):
        parts: Any = (part for pair in value.items() for part in pair)
    elif isinstance(value, tuple | list):
        parts = value
    else:
        return None
    attributes = getattr(value, "__dict__", None)
    if attributes and attributes is not value:
        return None
    found = tuple(map(frozen, parts))
    return None if None in found else (type(value).__name__, found)


def of_torch(kind: Any) -> bool:
    """Whether a type or a function is torch's."""
    return (getattr(kind, "__module__", None) or "").split(".")[0] == "torch"


def written_class(part: nn.Module) -> type[nn.Module]:
    """The type of a module, before torch has made a parametrised one of it."""
    kind = type(part)
    here = kind.__module__ == parametrize.__name__
    made = here and not issubclass(kind, parametrize.ParametrizationList)
    return kind.__mro__[1] if made else kind


@dataclass
class OwnCode:
    """What runs when a network does, outside torch.

    seen: all that it reads, as it is now.
    hidden: a name whose value may change unseen; None: there is none.
    blind: what a trace may take for something else; None: there is none.
    """

    seen: dict[Hashable, None] = field(default_factory=dict)
    hidden: str | None = None
    blind: str | None = None


def own_code(model: nn.Module) -> OwnCode:
    """What the code of `model` reads."""
    kinds = {part: written_class(part) for part in model.modules()}
    own = [part for part, kind in kinds.items() if not of_torch(kind)]
    graphs = [part for part in kinds if isinstance(part, fx.GraphModule)]
    if not own and not graphs:
        return OwnCode()
    functions = [
        (name, value)
        for part in own
        for name, value in vars(part).items()
        if isinstance(value, FunctionType)
    ]
    methods = [type(part).forward for part in graphs]
    functions += [("forward", own) for own in methods if isinstance(own, FunctionType)]
    return _Reading(list(dict.fromkeys(kinds[part] for part in own)), functions).found


class _Reading:
    """Follows names from function to function. A name stands for whatever has it: a variable, and
    an attribute of any of the classes and modules."""

    def __init__(self, kinds: list[type], functions: list[tuple[str, FunctionType]]) -> None:
        """functions: attributes of single networks."""
        self.found = OwnCode()
        self.known: set[int] = set()
        self.names: dict[str, None] = dict.fromkeys(STARTS)
        self.spaces: list[type | ModuleType] = []
        self.functions: list[FunctionType] = []
        for kind in kinds:
            self._class(kind)
        for name, function in functions:
            self._value(name, function)
        size = 0
        while size != (size := len(self.names) + len(self.spaces) + len(self.functions)):
            for function in list(self.functions):
                self._function(function)
            for space in list(self.spaces):
                own = vars(space)
                for name in self.names:
                    if name in own:
                        self._value(name, own[name])

    def _class(self, kind: type) -> None:
        for base in kind.__mro__:
            own = base.__module__ not in PURE_MODULES and not of_torch(base)
            if own and base not in self.spaces:
                self.spaces.append(base)

    def _function(self, function: FunctionType) -> None:
        names, attributes, blind = _static(function.__code__)
        self.names.update(dict.fromkeys(attributes))
        self.found.blind = self.found.blind or blind
        variables = function.__globals__
        for name in names:
            if name in variables:
                self._value(name, variables[name])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            if name != "__class__":
                try:
                    self._value(name, cell.cell_contents)
                except ValueError:  # empty as yet
                    self.found.hidden = self.found.hidden or name
        for own in function.__defaults__ or ():
            self._value("a default", own)
        for name, own in {**(function.__kwdefaults__ or {}), **vars(function)}.items():
            self._value(name, own)

    def _value(self, name: str, value: Any) -> None:
        plain = frozen(value)
        if plain is not None:
            self.found.seen[name, plain] = None
            return
        self.found.seen[name, id(value)] = None
        if id(value) in self.known:
            return
        self.known.add(id(value))
        if type(value) in (dict, list, tuple):
            parts = (
                value if type(value) is not dict else [p for pair in value.items() for p in pair]
            )
            for part in parts:
                self._value(name, part)
            return
        if isinstance(value, property):
            for part in (value.fget, value.fset):
                self._value(name, part)
        elif isinstance(value, staticmethod | classmethod):
            self._value(name, value.__func__)
        elif isinstance(value, ModuleType):
            if value.__name__.split(".")[0] not in {"torch", *PURE_MODULES}:
                self.spaces.append(value)
        elif of_torch(value) and isinstance(value, type | FunctionType | BuiltinFunctionType):
            pass
        elif isinstance(value, FunctionType) and not _of_pythons_library(value):
            self.found.seen[name, value.__code__] = None
            self.functions.append(value)
        elif isinstance(value, type):
            self._class(value)
        elif not _is_pure(value):
            self.found.hidden = self.found.hidden or name
            self.found.seen[name, _state(value)] = None


def _of_pythons_library(function: FunctionType) -> bool:
    """Whether a function is one of Python's own modules, and not made there of a network's. They
    are large, and what they keep, such as the handlers of logs, is no business of a network; so it
    counts as hidden, unread."""
    name = (function.__module__ or "").split(".")[0]
    there = function.__code__.co_filename.startswith(LIBRARY)
    return there and name in sys.stdlib_module_names and name != "typing"


def _state(value: Any) -> Hashable:
    """What a pass may change in `value`, as far as it is known: what a generator draws next, and
    the numbers of a tensor, a small array or a collection. The generators of modules do not count:
    training seeds them."""
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType | type):
        value = owner  # as in `draw = generator.random`
    if any(value is own for own in SEEDED):
        return None
    match value:
        case torch.Generator():
            return value.get_state().cpu().numpy().tobytes()
        case np.random.Generator():
            return repr(value.bit_generator.state)
        case np.random.RandomState():
            return repr(value.get_state())
        case random.Random():
            return value.getstate()
        case torch.Tensor() if not value.is_inference():
            return value._version
    if type(value) is np.ndarray and value.nbytes <= SMALL:
        return value.tobytes()
    if type(value) in (deque, set):
        frozen_parts = [(part, frozen(part)) for part in value]
        return tuple(own or (id(part), _state(part)) for part, own in frozen_parts)
    if isinstance(value, bytearray | count):
        return repr(value)
    return _numbers_of(value)


def _numbers_of(value: Any) -> Hashable:
    """The plain attributes of an object whose class is none of `LIBRARIES`, such as a count of
    passes."""
    kind = type(value)
    if kind is not SimpleNamespace and kind.__module__.split(".")[0] in LIBRARIES:
        return None
    attributes = getattr(value, "__dict__", None)
    if type(attributes) is not dict:
        return None
    return tuple((name, own) for name, own in attributes.items() if isinstance(own, PLAIN))


def _is_pure(value: object) -> bool:
    """Whether `value` is a function in C without variables."""
    if isinstance(value, MethodDescriptorType | WrapperDescriptorType):
        return True
    if not isinstance(value, BuiltinFunctionType):
        return False
    own = value.__self__
    if isinstance(own, ModuleType):
        return own.__name__.split(".")[0] in {"torch", *PURE_MODULES}
    return own is None or isinstance(own, type)


@lru_cache(maxsize=1024)
def _static(code: CodeType) -> tuple[list[str], list[str], str | None]:
    """The variables and attributes that a function names, and what in it hides from a trace."""
    variables: set[str] = set()
    attributes: set[str] = set()
    blind: set[str] = set()
    for own in _codes(code):
        for operation in dis.get_instructions(own):
            if operation.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                variables.add(str(operation.argval))
            elif operation.opname in BLIND_OPERATIONS:
                blind.add(BLIND_OPERATIONS[operation.opname])
        attributes |= {*own.co_names, *(each for each in own.co_consts if isinstance(each, str))}
    blind |= BLIND & (attributes | variables)
    return sorted(variables), sorted(attributes), min(blind, default=None)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for own in code.co_consts:
        if isinstance(own, CodeType):
            yield from _codes(own)
