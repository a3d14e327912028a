"""Results that are computed once for a network."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

P = ParamSpec("P")
T = TypeVar("T")


def once_per_network(
    function: Callable[Concatenate[nn.Module, P], T],
) -> Callable[Concatenate[nn.Module, P], T]:
    """Compute `function` once for a network and its other, hashable arguments. Results go with the
    network, which they must not hold."""
    known: WeakKeyDictionary[nn.Module, dict[Hashable, Any]] = WeakKeyDictionary()

    @wraps(function)
    def cached(model: nn.Module, /, *args: P.args, **kwargs: P.kwargs) -> T:
        results = known.setdefault(model, {})
        key = (*args, *kwargs.items())
        if key not in results:
            results[key] = function(model, *args, **kwargs)
        found: T = results[key]
        return found

    return cached
