"""How much a network computes and keeps in memory for one record, counted in one pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fedpriv.training.cached_by_model import cached_by_model


@dataclass(frozen=True)
class ModelCost:
    """Sizes of a network for records of one shape.

    parameters: d.
    layers: number of leaf modules called.
    products: multiply-adds of one record's forward pass.
    activations: numbers that a training pass keeps for one record, with unfolded patches of
        convolutions.
    """

    parameters: int
    layers: int
    products: int
    activations: int


def measure_cost(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> ModelCost:
    """Run one record of zeros, of `shape` and `dtype`, through a copy of `module` and count."""
    leaves: list[tuple[int, int]] = []

    def count(leaf: nn.Module, _: object, y: object) -> None:
        if not isinstance(y, torch.Tensor):
            leaves.append((0, 0))
            return
        weight: Any = getattr(leaf, "weight", None)
        products = 0
        patches = 0
        matrix = isinstance(weight, torch.Tensor) and weight.dim() > 1
        if matrix and not isinstance(leaf, nn.Embedding):  # which looks up and multiplies nothing
            products = y.numel() * weight[0].numel()
            patches = products // len(weight) if products and weight.dim() > 2 else 0
        leaves.append((products, y.numel() + patches))

    own = copy.deepcopy(module).eval()
    for leaf in own.modules():
        if not any(leaf.children()):
            leaf.register_forward_hook(count)
    device = next((p.device for p in own.parameters()), torch.device("cpu"))
    with torch.no_grad():
        own(torch.zeros(1, *shape, dtype=dtype, device=device))
    products, activations = (sum(column) for column in zip(*leaves)) if leaves else (0, 0)
    parameters = sum(p.numel() for p in own.parameters())
    return ModelCost(parameters, len(leaves), products, activations)


known_cost = cached_by_model(measure_cost)
"""`measure_cost`, once for a network, a shape and a data type."""
