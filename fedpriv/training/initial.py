"""Initial weights of a network."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from fedpriv.training.vectors import flatten


def undrawable(model: nn.Module) -> nn.Module | None:
    """The first layer with parameters that cannot draw its weights again; None: all can."""
    for layer in model.modules():
        own = next(layer.parameters(recurse=False), None)
        if own is not None and _draw(layer) is None:
            return layer
    return None


def drawn_weights(model: nn.Module, seed: int) -> Tensor:
    """Parameters (d,) as each layer's own initialisation draws them. They are drawn on the CPU, so
    that every device has the same. The model stays as it is. `undrawable` must be None."""
    fresh = deepcopy(model).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in fresh.modules():
            if next(layer.parameters(recurse=False), None) is not None:
                draw = _draw(layer)
                assert draw is not None
                draw()
    return flatten(fresh)


def _draw(layer: nn.Module) -> Callable[[], None] | None:
    """The method that draws a layer's weights. That of torch's attention has a private name."""
    return getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
