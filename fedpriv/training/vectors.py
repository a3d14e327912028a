"""A network's parameters as one flat vector, in the order of `named_parameters()`. Buffers are
never sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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


class ParameterLayout:
    """The parameters of many networks as stacks (m, ...), whose dimensions a trainer may reorder.

    sizes: of the parameters.
    shapes: of one network's parameters in the stacks.
    """

    def __init__(
        self,
        shapes: Sequence[Sequence[int]],
        orders: Sequence[Sequence[int]] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> None:
        """shapes: of the parameters of a network.
        orders: of their dimensions in the stacks; by default the parameters' own.
        offsets: where each begins in a vector; by default one after the other.
        """
        orders = orders or [range(len(shape)) for shape in shapes]
        back = [sorted(range(len(order)), key=order.__getitem__) for order in orders]
        self.sizes = [math.prod(shape) for shape in shapes]
        self._offsets = offsets or [sum(self.sizes[:i]) for i in range(len(shapes))]
        self.shapes = [[shape[dim] for dim in order] for shape, order in zip(shapes, orders)]
        self._parameters = shapes
        self._there, self._back = (
            [(0, *(1 + dim for dim in dims)) for dims in each] for each in (orders, back)
        )

    def stacks(self, vectors: Tensor) -> list[Tensor]:
        """Views of vectors (m, d) as stacks."""
        pieces = [vectors[:, at : at + size] for at, size in zip(self._offsets, self.sizes)]
        each = zip(pieces, self._parameters, self._there)
        return [piece.reshape(len(piece), *shape).permute(dims) for piece, shape, dims in each]

    def vectors(self, stacks: Sequence[Tensor]) -> Tensor:
        """Stacks as new vectors (m, d)."""
        each = sorted(zip(self._offsets, stacks, self._back), key=lambda one: one[0])
        rows = [stack.permute(dims).reshape(len(stack), -1) for _, stack, dims in each]
        return torch.cat(rows, 1)

    def changes(self, stacks: Sequence[Tensor], starts: Sequence[Tensor]) -> Tensor:
        """Stacks minus the stacks `starts` (1, ...) as new vectors (m, d), in one pass."""
        found = stacks[0].new_empty((len(stacks[0]), sum(self.sizes)))
        for change, stack, start in zip(self.stacks(found), stacks, starts):
            torch.sub(stack, start, out=change)
        return found
