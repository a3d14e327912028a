"""Initial weights of a network."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from fedpriv.errors import require
from fedpriv.training.vectors import flatten


def drawn_weights(model: nn.Module, seed: int) -> Tensor:
    """Parameters (d,) as each layer's own initialisation draws them. They are drawn on the CPU, so
    that every device has the same. The model stays as it is.

    Raises ConfigError for a layer with parameters that has no `reset_parameters`.
    """
    fresh = deepcopy(model).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in fresh.modules():
            if next(layer.parameters(recurse=False), None) is not None:
                draws = hasattr(layer, "reset_parameters")
                allowed = f"shared: {type(layer).__name__} cannot draw its weights again"
                require(draws, "algo.init_weights", "own", allowed)
                layer.reset_parameters()  # type: ignore[operator]
    return flatten(fresh)
