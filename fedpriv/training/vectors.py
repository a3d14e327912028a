"""A network's parameters as one flat vector, in the order of `named_parameters()`. Buffers are
never sent."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call


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


def call(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    x: Tensor,
    buffers: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Outputs for x with these parameters and buffers in the place of the network's own.

    torch's own tying of weights leaves tensors of a transform in a layer that is called twice, so
    all names of a parameter are given here, once for each layer.
    """
    views = {id(own): parameters[name] for name, own in model.named_parameters()}
    places = {
        f"{prefix}.{name}" if prefix else name: views[id(own)]
        for prefix, part in model.named_modules()
        for name, own in part._parameters.items()
        if own is not None
    }
    outputs: Tensor = functional_call(model, {**places, **(buffers or {})}, (x,), tie_weights=False)
    return outputs


def load(model: nn.Module, vector: Tensor) -> None:
    """Overwrite the parameters of `model` with `vector` (d,)."""
    with torch.no_grad():
        for name, value in unflatten(model, vector).items():
            model.get_parameter(name).copy_(value)


def backward(loss: Tensor) -> None:
    """Leave the gradients of `loss` in the parameters that it depends on, if any: a network may
    pass them by for some records."""
    if loss.requires_grad:
        torch.autograd.backward(loss)


def taken_gradient(leaf: nn.Parameter) -> Tensor:
    """The gradient that a backward pass has left in `leaf`, as a dense tensor, which is taken away;
    zeros if there is none.

    A backward pass reaches parameters behind checkpoints, which torch.autograd.grad passes over.
    """
    found, leaf.grad = leaf.grad, None
    if found is None:
        return torch.zeros_like(leaf)
    return found.to_dense() if found.is_sparse else found
