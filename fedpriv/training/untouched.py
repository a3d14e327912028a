"""Whether torch's layers still compute what their types say, and what a network looks like now.

A hook, a patch or a frozen parameter may come at any time, so whatever is computed from a network's
layers holds only as long as `appearance` stays the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from itertools import islice
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as torch_module

from fedpriv.errors import ConfigError
from fedpriv.training.own_code import frozen, own_code, written_class

HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
CONTENTS = *HOOKS, "_parameters", "_buffers", "_modules"
"""What a module keeps in dictionaries of its own."""
GLOBAL_HOOKS = tuple(
    name
    for name, value in vars(torch_module).items()
    if name.startswith(("_global_forward", "_global_backward")) and isinstance(value, dict)
)
"""Hooks of all modules of the process."""
CALLS = "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__"
FUNCTIONS: tuple[tuple[Any, str], ...] = (
    (functional, "linear"),
    (functional, "conv2d"),
    (functional, "relu"),
    (functional, "gelu"),
    (functional, "silu"),
    (functional, "max_pool2d"),
    (functional, "avg_pool2d"),
    (functional, "dropout"),
    (functional, "dropout1d"),
    (functional, "dropout2d"),
    (functional, "dropout3d"),
    (functional, "group_norm"),
    (functional, "layer_norm"),
    (functional, "embedding"),
    (functional, "multi_head_attention_forward"),
    (functional, "scaled_dot_product_attention"),
    (torch, "tanh"),
    (torch, "sigmoid"),
    (torch, "flatten"),
    (torch._VF, "lstm"),
    (torch._VF, "gru"),
    *((torch_module.Module, name) for name in CALLS),
)
"""What torch's layers call by name, so that a patch would change them."""
_ORIGINALS = tuple(getattr(owner, name) for owner, name in FUNCTIONS)


def torch_is_untouched() -> bool:
    """Whether there are no hooks for all modules, and no patches of what layers call."""
    hooked = any(getattr(torch_module, name) for name in GLOBAL_HOOKS)
    return not hooked and all(
        getattr(owner, name) is original for (owner, name), original in zip(FUNCTIONS, _ORIGINALS)
    )


def untouched(module: nn.Module) -> bool:
    """Whether a module computes what its type says: it has no hooks and no methods of its own, and
    nobody replaced those of its type."""
    own = vars(module)
    if any(own[name] for name in HOOKS) or any(map(callable, own.values())):
        return False
    plain = all(type(each) in (nn.Parameter, type(None)) for each in own["_parameters"].values())
    if not plain or not all(map(_original, type(module).__mro__)):
        return False
    forward = _forward_of(type(module))
    return forward is type(module).forward and torch_is_untouched()


_FORWARDS: dict[type[nn.Module], Any] = {}
_CLASSES: dict[type, dict[str, Any]] = {}
_UNIMPORTANT = {"__annotations__", "__doc__"}


def remember(types: Iterator[type[nn.Module]] | list[type[nn.Module]]) -> None:
    """Note the `forward` that these types have now, as theirs."""
    for own in types:
        _FORWARDS[own] = own.forward if own.forward.__module__ == own.__module__ else None
        for base in own.__mro__:
            if base not in (object, nn.Module):
                _CLASSES[base] = _members(base)


def _members(kind: type) -> dict[str, Any]:
    return {name: own for name, own in vars(kind).items() if name not in _UNIMPORTANT}


def changed_classes(model: nn.Module) -> tuple[Hashable, ...]:
    """Classes of torch with other members than at first, as they are now."""
    kinds = dict.fromkeys(base for part in model.modules() for base in type(part).__mro__)
    return tuple((kind, *map(id, vars(kind).values())) for kind in kinds if not _original(kind))


def _original(kind: type) -> bool:
    known = _CLASSES.get(kind)
    return known is None or _members(kind) == known


def _forward_of(of: type[nn.Module]) -> Any:
    return _FORWARDS.get(of, of.forward)


def appearance(model: nn.Module) -> Hashable:
    """What may change what a network computes, except for the values of its parameters: types,
    settings, hooks, patches, writes to other tensors, which parameters are trained, and what their
    code reads.

    Raises ConfigError for a network with parts in TorchScript, whose classes do not say that.
    """
    known = _SEEN.get()
    if known is not None and known[0] is model:
        return known[1]
    parts = tuple(map(_appearance, model.modules()))
    return _torch(), tuple(own_code(model).seen), changed_classes(model), parts


def _torch() -> Hashable:
    """What may change all networks."""
    if torch_is_untouched():
        return None
    hooks = tuple(tuple(getattr(torch_module, name)) for name in GLOBAL_HOOKS)
    return hooks, tuple(id(getattr(owner, name)) for owner, name in FUNCTIONS)


_LISTS_OF_WEIGHTS = "_flat_weights", "_flat_weight_refs"
_INTERNAL_NAMES = frozenset(vars(nn.Module()))
"""Attributes that every module has, before those of its type."""
_INTERNAL = len(_INTERNAL_NAMES)


def _appearance(part: nn.Module) -> Hashable:
    own = vars(part)
    kind = type(part)
    if isinstance(part, torch.jit.ScriptModule):
        raise ConfigError("model", kind.__name__, "networks in Python, not in TorchScript")
    found: list[Hashable] = [id(part), id(kind), id(kind.forward)]
    if parameters := own["_parameters"]:
        found += map(_tensor, parameters.values())
    if buffers := own["_buffers"]:
        found += map(_version, buffers.values())
    for name in HOOKS:
        if hooks := own[name]:
            found += name, *hooks  # their numbers are never used again
    internal = _INTERNAL if next(iter(own)) == "training" else 0
    trusted = _from_torch(part)
    for name, value in islice(own.items(), internal, None):
        if type(value) in _PLAIN:
            found.append((type(value), value))
        elif (plain := frozen(value)) is not None:
            found.append(plain)
        elif isinstance(value, Tensor):
            found.append(_version(value))
        elif not (trusted and name in _LISTS_OF_WEIGHTS):
            found.append(id(value))
    return tuple(found)


def _version(own: Tensor | None) -> Hashable:
    """Which tensor it is, and how often somebody has written to it."""
    if own is None:
        return None
    return id(own), None if own.is_inference() else own._version


def other_tensors(model: nn.Module) -> list[Tensor]:
    """Its buffers, and the tensors among its attributes."""
    attributes = (own for part in model.modules() for own in vars(part).values())
    return [*model.buffers(), *(own for own in attributes if isinstance(own, Tensor))]


_PLAIN = (bool, int, float, str, type(None))


def _is_pure(value: object) -> bool:
    """Whether `value` is a function without variables of its own."""
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | type | None)
    return isinstance(value, FunctionType) and not value.__closure__


def may_remember(model: nn.Module) -> bool:
    """Whether a pass may change `model` so that `appearance` does not show it."""
    return any(True for _ in model.buffers()) or has_hidden_attributes(model)


def has_hooks(model: nn.Module) -> bool:
    """Whether functions of somebody else run within its passes."""
    everywhere = any(getattr(torch_module, name) for name in GLOBAL_HOOKS)
    return everywhere or any(vars(part)[name] for part in model.modules() for name in HOOKS)


def has_hidden_attributes(model: nn.Module) -> bool:
    """Whether an attribute of a module or of a parameter is neither plain nor a function without
    variables of its own."""
    if any(frozen(_marks(own)) is None for own in model.parameters() if vars(own)):
        return True
    return not all(frozen(value) is not None or _is_pure(value) for value in _attributes(model))


def _attributes(model: nn.Module) -> Iterator[object]:
    """Attributes of modules, without those that every module has, and the private ones of torch's
    own layers."""
    for part in model.modules():
        trusted = _from_torch(part)
        for name, value in vars(part).items():
            if name not in _INTERNAL_NAMES and not (trusted and _is_torchs_own(name, value)):
                yield value


def _marks(parameter: Tensor) -> dict[str, object]:
    """What somebody has attached to a parameter. torch's compiler leaves marks of its own."""
    return {n: own for n, own in vars(parameter).items() if not n.startswith("_dynamo")}


def _from_torch(part: nn.Module) -> bool:
    """Whether somebody at torch has written the module's class."""
    return written_class(part).__module__.startswith("torch.nn.")


def _is_torchs_own(name: str, value: object) -> bool:
    """Whether an attribute of a layer of torch is one that torch has given it, and does not change:
    recurrent layers keep lists of their weights, parametrizations which of some ways they go."""
    return name in _LISTS_OF_WEIGHTS or isinstance(value, Enum)


class Snapshot:
    """What a network looks like now; quick to compare with what it looks like later."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.attributes = [vars(part) for part in model.modules()]
        self.values = [list(own.values()) for own in self.attributes]  # alive: ids stay theirs
        self.contents = [own[name] for own in self.attributes for name in CONTENTS]
        self.inside = [list(own.values()) for own in self.contents]
        self.parameters = list(model.parameters())
        self.marks = [frozen(_marks(own)) for own in self.parameters]
        self.before = appearance(model) if self._has_collections() else None

    def holds(self) -> bool:
        """Whether it looks the same."""
        both = ((self.attributes, self.values), (self.contents, self.inside))
        same = all(
            len(own) == len(values) and all(map(is_, own.values(), values))
            for each in both
            for own, values in zip(*each)
        )
        if not same or [frozen(_marks(own)) for own in self.parameters] != self.marks:
            return False
        if any(own._backward_hooks or not own.requires_grad for own in self.parameters):
            return False
        return self.before is None or appearance(self.model) == self.before

    def _has_collections(self) -> bool:
        return any(isinstance(value, list | dict) for value in _attributes(self.model))


def _tensor(own: Tensor | None) -> Hashable:
    if own is None:
        return None
    hooks = own._backward_hooks
    marks = frozen(_marks(own)) if vars(own) else None
    shape = None if isinstance(own, nn.UninitializedParameter) else own.shape
    return id(own), own.requires_grad, own.dtype, shape, tuple(hooks) if hooks else None, marks


_SEEN: ContextVar[tuple[nn.Module, Hashable] | None] = ContextVar("_SEEN", default=None)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Context in which `model` stays as it looks at the start, so that it is looked at once."""
    token = _SEEN.set((model, appearance(model)))
    try:
        yield
    finally:
        _SEEN.reset(token)
