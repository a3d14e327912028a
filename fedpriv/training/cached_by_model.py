"""A cache for what is computed from a network's layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from fedpriv.training.untouched import appearance, other_tensors, unchanged

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Known(Generic[T]):
    """What was computed for a network.

    looks: what it looked like.
    alive: its tensors then, whose ids no others get.
    """

    looks: Hashable
    alive: list[Tensor]
    results: dict[Hashable, T] = field(default_factory=dict)


def cached_by_model(
    function: Callable[Concatenate[nn.Module, P], T],
) -> Callable[Concatenate[nn.Module, P], T]:
    """Compute `function` once for a network as it looks now and its other, hashable arguments.
    Where a hook, a patch or a frozen parameter comes later, it is computed again. Results go with
    the network."""
    known: WeakKeyDictionary[nn.Module, _Known[T]] = WeakKeyDictionary()

    @wraps(function)
    def cached(model: nn.Module, /, *args: P.args, **kwargs: P.kwargs) -> T:
        now = appearance(model)
        if model not in known or known[model].looks != now:
            known[model] = _Known(now, other_tensors(model))
        results = known[model].results
        key = (*args, *kwargs.items())
        if key in results:
            return results[key]
        with unchanged(model):
            found = function(model, *args, **kwargs)
        if any(model.children()) or _is_apart(found, model):
            results[key] = found
        return found

    return cached


def _is_apart(found: object, model: nn.Module) -> bool:
    """Whether what was found of a single layer does not hold the layer itself, which then would
    live as long as the cache."""
    if isinstance(found, nn.Module):
        return found is not model
    return bool(getattr(found, "apart", isinstance(found, bool | None)))
