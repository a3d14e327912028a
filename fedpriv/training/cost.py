"""How much a network computes and keeps in memory for one record, counted in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from fedpriv.training.graph import device_of, fresh
from fedpriv.training.per_network import once_per_network


@dataclass(frozen=True)
class ModelCost:
    """Sizes of a network for records of one shape.

    parameters: d.
    products: multiply-adds of one record's forward pass.
    activations: numbers that a training pass keeps for one record, with unfolded patches of
        convolutions.
    steps: the longest chain of steps of a recurrent layer, each of which waits for the one before;
        1 without such a layer.
    """

    parameters: int
    products: int
    activations: int
    steps: int = 1


class _LayerCost(NamedTuple):
    """As `ModelCost`, of one layer."""

    products: int
    activations: int
    steps: int = 1


def measure_cost(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> ModelCost:
    """Run one record of zeros, of `shape` and `dtype`, through a copy of `module` and count."""
    found: list[_LayerCost] = []

    def count(layer: nn.Module, _: object, y: object) -> None:
        found.append(_cost(layer, y))

    own = fresh(module, shape, dtype).eval()
    for layer in own.modules():
        if not any(layer.children()) or isinstance(layer, nn.MultiheadAttention):
            layer.register_forward_hook(count)
    with torch.no_grad():
        own(torch.zeros(1, *shape, dtype=dtype, device=device_of(own)))
    parameters = sum(p.numel() for p in own.parameters())
    return ModelCost(
        parameters,
        products=sum(layer.products for layer in found),
        activations=sum(layer.activations for layer in found),
        steps=max([layer.steps for layer in found], default=1),
    )


def _cost(layer: nn.Module, y: object) -> _LayerCost:
    """Of a layer that wrote `y` for one record."""
    first = y[0] if isinstance(y, tuple) and y else y
    if not isinstance(first, torch.Tensor) or not first.dim():
        return _LayerCost(0, 0)
    numbers = first.numel()
    rows = numbers // max(1, first.shape[-1])
    matrices = [p for p in layer.parameters() if p.dim() > 1]
    if isinstance(layer, (nn.RNNBase, nn.RNNCellBase)):
        hidden = sum(p.shape[1] for p in matrices[1::2])
        return _LayerCost(rows * sum(p.numel() for p in matrices), 2 * rows * hidden, rows)
    if isinstance(layer, nn.MultiheadAttention):
        pairs = rows * rows
        products = rows * sum(p.numel() for p in matrices) + 2 * pairs * layer.embed_dim
        return _LayerCost(products, 5 * numbers + pairs * layer.num_heads)
    weight: Any = getattr(layer, "weight", None)
    products = 0
    patches = 0
    matrix = isinstance(weight, torch.Tensor) and weight.dim() > 1
    if matrix and not isinstance(layer, nn.Embedding):  # which looks up and multiplies nothing
        products = numbers * weight[0].numel()
        patches = products // len(weight) if products and weight.dim() > 2 else 0
    return _LayerCost(products, numbers + patches)


known_cost = once_per_network(measure_cost)
"""`measure_cost`, once for a network, a shape and a data type."""
