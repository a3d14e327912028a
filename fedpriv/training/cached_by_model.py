"""A cache for what is computed from a network's layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

P = ParamSpec("P")
T = TypeVar("T")


def cached_by_model(
    function: Callable[Concatenate[nn.Module, P], T],
) -> Callable[Concatenate[nn.Module, P], T]:
    """Compute `function` once for a network and its other, hashable arguments, since the layers of
    a network stay as they are. Results go with the network."""
    known: WeakKeyDictionary[nn.Module, dict[Hashable, T]] = WeakKeyDictionary()

    @wraps(function)
    def cached(model: nn.Module, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not any(model.children()):
            return function(model, *args, **kwargs)  # the result may hold the network itself
        results = known.setdefault(model, {})
        key = (*args, *kwargs.items())
        if key not in results:
            results[key] = function(model, *args, **kwargs)
        return results[key]

    return cached
