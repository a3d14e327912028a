"""Norms and clipped sums of per-record gradients, layer by layer, from one backward pass for all
records.

A linear layer that reads a, and whose output has the gradient g, has the per-record gradient g a^T.
Its norm is |g| |a|, so it is never formed: weighting the rows of g gives the sum in one product
(Goodfellow: Efficient per-example gradient computations, 2015). Convolutions and normalisations
share their few parameters between many positions. There a record's own gradient of the layer takes
less memory than the computation of its norm without it (Bu, Mao, Xu: Scalable and efficient
training of large convolutional neural networks with differential privacy, NeurIPS 2022, compare
positions^2 with parameters). So it is formed for a piece of a batch, one layer at a time.

Arguments: k networks with b records each; h (k b, ...) is what a layer reads; parameters (k, n) are
flat. Only linear layers support k > 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

SMALL = 400
"""Multiply-adds below which torch computes batched products by its own loops, not by a library."""
LEAST_ROWS = 32
"""Rows below which products of matrices use other kernels, on the processors that were tried: 7
with one thread, 20 with two."""
NUMBERS_AT_ONCE = 32
"""Numbers that a processor's widest loop takes at once."""
PATCHES_AT_ONCE = {"cpu": 2**20, "cuda": 2**28}
"""Numbers of a convolution's patches in memory at once, by device; more would not fit a processor's
caches."""


class Pass(ABC):
    """A layer's pass over a batch.

    written: the layer's output, whose gradient the backward pass computes.
    """

    written: Tensor

    @property
    def rows(self) -> Tensor:
        """`written` as the next layer reads it, (k b, ...)."""
        return self.written

    @property
    def watched(self) -> list[Tensor]:
        """What the backward pass gives gradients of."""
        return [self.written]

    @abstractmethod
    def squares(self, *gradients: Tensor) -> Tensor:
        """The squared norms (k, b) float64 of the records' gradients of this layer.

        gradients: of `watched`.
        """

    @abstractmethod
    def sums(self, factors: Tensor) -> list[Tensor]:
        """For each parameter (k, n) float64: the sum of the records' gradients times factors (k,
        b). A record of factor 0 adds nothing, even if it is not finite. Call `squares` first."""


class LinearPass(Pass):
    """A linear layer on one row a record.

    One product for all k networks has the bits of k single products: small products would use
    another kernel, so they are computed one by one. Where gradients are wanted, a record has the
    same bits in a batch of any length: a few rows would use other kernels too, so zeros are added
    to them, where a layer has one output every row is summed alone, and where it reads one number
    it reads a zero too. All of that holds for one thread: several would share a product's sums.
    """

    def __init__(self, layer: Any, parameters: Sequence[Tensor], h: Tensor) -> None:
        k = len(parameters[0])
        self.biased = layer.bias is not None
        self.read = h.view(k, -1, layer.in_features)
        weight = parameters[0].reshape(k, *layer.weight.shape)
        offset = parameters[1].unsqueeze(1) if self.biased else None
        wanted = torch.is_grad_enabled()
        if wanted and layer.out_features == 1:
            alone = torch.linalg.vecdot(self.read, weight).unsqueeze(2)
            self.written = alone if offset is None else alone + offset
            return
        n = self.read.shape[1]
        few = wanted and n < LEAST_ROWS
        more = int(wanted and layer.in_features == 1)
        rows = LEAST_ROWS - n if few else 0
        read = functional.pad(self.read, (0, more, 0, rows)) if more or few else self.read
        weight = functional.pad(weight, (0, more)) if more else weight
        if read.shape[1] * weight[0].numel() < SMALL:
            offsets = [None] * k if offset is None else offset.squeeze(1).unbind()
            each = [functional.linear(*own) for own in zip(read.unbind(), weight.unbind(), offsets)]
            written = torch.stack(each)
        elif offset is not None:
            written = torch.baddbmm(offset, read, weight.transpose(1, 2))
        else:
            written = torch.bmm(read, weight.transpose(1, 2))
        self.written = written[:, :n] if few else written

    @property
    def rows(self) -> Tensor:
        return self.written.flatten(0, 1)

    def squares(self, *gradients: Tensor) -> Tensor:
        self.a = self.read.detach().double()
        self.g = gradients[0].double()
        a, g = (torch.linalg.vector_norm(rows, dim=2).square() for rows in (self.a, self.g))
        squares: Tensor = g * (a + self.biased)
        return squares

    def sums(self, factors: Tensor) -> list[Tensor]:
        g, a = (_zeroed(rows, factors) for rows in (self.g * factors.unsqueeze(2), self.a))
        weight = products(g.transpose(1, 2), a).flatten(1)
        return [weight, g.sum(1)] if self.biased else [weight]


class FormedPass(Pass):
    """A layer whose gradients are formed record by record."""

    @abstractmethod
    def formed(self, gradient: Tensor) -> list[Tensor]:
        """Each parameter's (b, n)."""

    def squares(self, *gradients: Tensor) -> Tensor:
        self.own = [each.double() for each in self.formed(gradients[0])]
        norms = torch.stack([torch.linalg.vector_norm(each, dim=1) for each in self.own])
        return norms.square().sum(0, keepdim=True)

    def sums(self, factors: Tensor) -> list[Tensor]:
        return [factors @ _zeroed(each.unsqueeze(0), factors).squeeze(0) for each in self.own]


class ConvolutionPass(FormedPass):
    """A convolution: its kernel's gradient is a sum over all patches."""

    def __init__(self, layer: nn.Conv2d, parameters: Sequence[Tensor], h: Tensor) -> None:
        self.layer = layer
        self.read = h.detach()
        self.window: dict[str, Any] = {
            "dilation": layer.dilation,
            "padding": layer.padding,
            "stride": layer.stride,
        }
        bias = None if layer.bias is None else parameters[1].flatten()
        weight = parameters[0].reshape(layer.weight.shape)
        # Few rows would use another kernel. Of one pixel, a kernel is a product of matrices.
        least = LEAST_ROWS if tuple(layer.kernel_size) == (1, 1) else 2
        more = max(0, least - len(h))
        rows = torch.cat([h, h.new_zeros((more, *h.shape[1:]))]) if more else h
        written = functional.conv2d(rows, weight, bias, **self.window)
        self.written = written[: len(h)] if more else written

    def formed(self, gradient: Tensor) -> list[Tensor]:
        layer = self.layer
        g = gradient.flatten(2)
        size = max(1, PATCHES_AT_ONCE[g.device.type] // (layer.weight[0].numel() * g.shape[2]))
        weight = g.new_empty((len(g), len(layer.weight), layer.weight[0].numel()))
        for own, rows, read in zip(*(torch.split(t, size) for t in (weight, g, self.read))):
            patches = _patches(layer, read, gradient.shape[2:])
            if len(rows) == 1:
                own[:] = record_products(rows, patches.transpose(1, 2))
            else:
                torch.bmm(rows, patches.transpose(1, 2), out=own)
        return [weight.flatten(1), g.sum(2)] if layer.bias is not None else [weight.flatten(1)]


def _patches(layer: nn.Conv2d, read: Tensor, sides: Sequence[int]) -> Tensor:
    """What each number of the output, which has these sides, is computed from: (b, field, n)."""
    window: dict[str, Any] = {
        "dilation": layer.dilation,
        "padding": layer.padding,
        "stride": layer.stride,
    }
    if read.device.type == "cpu":
        return functional.unfold(read, layer.kernel_size, **window)
    # On a GPU torch's own function is one kernel a record.
    rows, columns = (int(zeros) for zeros in layer.padding)
    padded = functional.pad(read, (columns, columns, rows, rows))
    record, channel, *steps = padded.stride()
    apart = [step * gap for step, gap in zip(steps, layer.dilation)]
    moves = [step * move for step, move in zip(steps, layer.stride)]
    found = padded.as_strided(
        (*read.shape[:2], *layer.kernel_size, *sides), (record, channel, *apart, *moves)
    )
    return found.reshape(len(read), -1, sides[0] * sides[1])


class GroupNormPass(FormedPass):
    """GroupNorm with its scale and offset, on rows (b, channels, ...)."""

    def __init__(self, layer: nn.GroupNorm, parameters: Sequence[Tensor], h: Tensor) -> None:
        normal = functional.group_norm(h, layer.num_groups, eps=layer.eps)
        scale, offset = (own.view(-1, *[1] * (h.dim() - 2)) for own in parameters)
        self.normal = normal.detach()
        self.written = normal * scale + offset

    def formed(self, gradient: Tensor) -> list[Tensor]:
        scale, offset = (
            own.reshape(*own.shape[:2], -1).sum(2) for own in (gradient * self.normal, gradient)
        )
        return [scale, offset]


def record_products(left: Tensor, right: Tensor) -> Tensor:
    """(b, m, n): the products of each record's (m, steps) and (steps, n). Those of a single record
    are computed twice: threads would share its sums, and round otherwise."""
    return torch.bmm(left, right) if len(left) > 1 else torch.bmm(_twice(left), _twice(right))[:1]


def _twice(matrix: Tensor) -> Tensor:
    """(2, m, n) from (1, m, n), with the same order of rows and columns in memory: the kernel of a
    product depends on it."""
    if matrix.is_contiguous():
        return torch.cat([matrix, matrix])
    across = matrix.transpose(1, 2)
    return torch.cat([across, across]).transpose(1, 2)


def tracked(written: Tensor) -> Tensor:
    """`written`, whose gradient the backward pass will compute where gradients are wanted."""
    return written if written.requires_grad else written.requires_grad_(torch.is_grad_enabled())


def products(left: Tensor, right: Tensor) -> Tensor:
    """(k, m, n): the products of (k, m, b) and (k, b, n), with the bits of single products."""
    if left[0].numel() * right.shape[2] < SMALL:
        return torch.stack([one @ other for one, other in zip(left.unbind(), right.unbind())])
    return torch.bmm(left, right)


def _zeroed(rows: Tensor, factors: Tensor) -> Tensor:
    """Rows (k, b, n) with zeros where the factor is 0: NaN times 0 is not 0."""
    kept = factors.unsqueeze(2) > 0
    if rows.device.type == "cpu":
        return rows if bool(kept.all()) else torch.where(kept, rows, 0.0)
    return rows.masked_fill_(~kept, 0.0)  # in place: the host need not know whether it must
