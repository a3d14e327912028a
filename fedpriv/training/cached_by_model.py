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
        if not any(model.children()):
            return function(model, *args, **kwargs)  # the result may hold the network itself
        now = appearance(model)
        before, results = known.get(model, (None, {}))
        if before != now:
            results = {}
            known[model] = now, results
        key = (*args, *kwargs.items())
        if key not in results:
            with unchanged(model):
                results[key] = function(model, *args, **kwargs)
        return results[key]

    return cached
