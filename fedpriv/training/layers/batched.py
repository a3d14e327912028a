"""The contract of layers that compute many users at once, with hand-written backward passes.

A layer is bound to a step's shape: a users (a prefix of the block's k), b rows each, activations
(a, b, features). It makes its views into the parameters and into reused buffers once. `forward` and
`backward` then only run kernels, each of which is one operation for all users. `backward` adds a
multiple of the gradients to the layer's targets. In plain SGD the targets are the parameters and
the multiple is -lr, so there is no gradient tensor: the outer product is added to the weights.

No layer mixes users or rows. A padding row has a loss gradient of zero and changes nothing, and a
user that diverges does not affect others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from fedpriv.training.layers.buffers import BufferPool, Masks

mask_where = torch.ops.aten.threshold_backward.grad_input
"""mask_where(g, v, t, grad_input=out): out = g where v > t, else 0. The only masking kernel that is
one fast pass."""

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Context:
    """What a layer may use, and its place in the network.

    buffers: memory that steps share.
    masks: random words for dropout.
    index: the layer's place in the network.
    in_place: whether the layer may overwrite x.
    first: whether no layer before this one has parameters, so that x needs no gradient.
    pool: window of the max-pooling that follows a convolution, (1, 1) without one.
    other: what a sum adds to x.
    """

    buffers: BufferPool
    masks: Masks
    index: int
    in_place: bool
    first: bool
    pool: tuple[int, int]
    other: Tensor | None = None

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A contiguous buffer of this layer."""
        return self.buffers.take((self.index, name), shape, dtype)

    def like(self, name: str, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer of this layer with x's shape and order of dimensions in memory."""
        return self.buffers.like((self.index, name), x, dtype)

    def drop(self, words: Tensor, p: float, rows: int) -> int:
        """This layer's random `words`, as `Masks.draw`."""
        return self.masks.draw(self.index, words, p, rows)

    def output_like(self, x: Tensor) -> Tensor:
        """The buffer of an elementwise layer's output: x's own, if it may be overwritten."""
        return x if self.in_place else self.like("y", x)


class BatchedLayer(ABC, Generic[Module]):
    """A layer bound to the activations `x` it reads; it writes `y`."""

    orders: ClassVar[dict[int, tuple[int, ...]]] = {}
    """The order of dimensions of one user's tensors in `parameters`, by their number of dimensions;
    by default torch's."""
    keeps_output = False
    """Whether `backward` needs y as `forward` wrote it, so that the next layer must not work in
    place."""

    def __init__(
        self,
        module: Module,
        x: Tensor,
        *,
        parameters: Sequence[Tensor],
        targets: Sequence[Tensor],
        context: Context,
    ) -> None:
        """module: the layer of one user's network.
        x: activations (a, b, ...).
        parameters: of the a active users, (a, ...) each, contiguous, in the module's order.
        targets: (a, ...) each, where gradients are added; they may be the parameters themselves.
        """
        self.module = module
        self.x = x
        self.context = context
        self.parameters = parameters
        self.targets = targets
        self.y = self.bind()

    @abstractmethod
    def bind(self) -> Tensor:
        """Make all views and buffers; return y."""

    def attach(self, grad: Tensor) -> Tensor:
        """Receive the buffer of y's gradient; return the buffer where x's gradient will be."""
        self.grad = grad
        return grad

    def prepare(self) -> None:
        """New input records arrived in x; called on the first layer only."""

    @abstractmethod
    def forward(self) -> None:
        """Compute y."""

    @abstractmethod
    def backward(self, scale: float) -> None:
        """Add `scale` times the gradients of the parameters to the targets, and compute x's
        gradient."""
