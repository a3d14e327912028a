"""A network's parameters as one flat vector, in the order of `named_parameters()`. Buffers are
never sent."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flatten(model: nn.Module) -> Tensor:
    """The parameters as a new vector (d,)."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def unflatten(model: nn.Module, vectors: Tensor) -> dict[str, Tensor]:
    """Views of `vectors` (..., d) as named parameters (..., *shape)."""
    named = dict(model.named_parameters())
    pieces = torch.split(vectors, [p.numel() for p in named.values()], dim=-1)
    return {
        name: piece.reshape(piece.shape[:-1] + p.shape)
        for (name, p), piece in zip(named.items(), pieces)
    }


def load(model: nn.Module, vector: Tensor) -> None:
    """Overwrite the parameters of `model` with `vector` (d,)."""
    with torch.no_grad():
        for name, value in unflatten(model, vector).items():
            model.get_parameter(name).copy_(value)
