"""A network's initial weights, drawn anew."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from fedpriv.errors import require
from fedpriv.training.vectors import flatten


def drawn_weights(model: nn.Module, seed: int) -> Tensor:
    """Parameters (d,) as each layer's own initialisation draws them, on the CPU so that every
    device draws alike; the model stays as it is. Raises ConfigError for a layer with parameters
    that cannot draw them again."""
    fresh = deepcopy(model).cpu()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in fresh.modules():
            if next(layer.parameters(recurse=False), None) is not None:
                draws = getattr(layer, "reset_parameters", None)
                require(
                    draws is not None,
                    "algo.init_weights",
                    "own",
                    f"shared: {type(layer).__name__} draws no weights anew",
                )
                layer.reset_parameters()  # type: ignore[operator]
    return flatten(fresh)
