"""A cache for what is computed from a network's layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from fedpriv.training.untouched import appearance, unchanged

P = ParamSpec("P")
T = TypeVar("T")


def cached_by_model(
    function: Callable[Concatenate[nn.Module, P], T],
) -> Callable[Concatenate[nn.Module, P], T]:
    """Compute `function` once for a network as it looks now and its other, hashable arguments.
    Where a hook, a patch or a frozen parameter comes later, it is computed again. Results go with
    the network."""
    known: WeakKeyDictionary[nn.Module, tuple[Hashable, dict[Hashable, T]]] = WeakKeyDictionary()

    @wraps(function)
    def cached(model: nn.Module, /, *args: P.args, **kwargs: P.kwargs) -> T:
        now = appearance(model)
        before, results = known.get(model, (None, {}))
        if before != now:
            results = {}
            known[model] = now, results
        key = (*args, *kwargs.items())
        if key in results:
            return results[key]
        with unchanged(model):
            found = function(model, *args, **kwargs)
        # Of a single layer the result may hold the layer itself, unless it says that it does not.
        if any(model.children()) or getattr(found, "apart", isinstance(found, bool | None)):
            results[key] = found
        return found

    return cached
