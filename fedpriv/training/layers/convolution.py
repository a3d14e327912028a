"""Convolutional layers of many users at once, as matrix products over unfolded patches.

Images between these layers are logically (a, p, b, h, w, c): a users, b rows, c channels, and p
positions inside a window of the max-pooling that follows (1 without one). So pooling takes maxima
of whole tensors. The strides of an image are those of the product that made it. Convolutions of the
input records put pixels in the columns of the product, which suits one or three channels. Later
convolutions put channels there, so that a row of a patch is copied as one run.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedpriv.training.layers.batched import BatchedLayer, mask_where

TINY = -1.2e-38
"""Just below zero, yet no denormal: `mask_where(g, v, TINY)` keeps g where v >= 0."""


def output_sides(module: nn.Conv2d, sides: tuple[int, ...]) -> tuple[int, ...]:
    """Height and width of a convolution's output."""
    parts = zip(sides, paddings(module), module.kernel_size, module.stride)
    return tuple((side + 2 * zeros - kernel) // step + 1 for side, zeros, kernel, step in parts)


def paddings(module: nn.Conv2d) -> tuple[int, ...]:
    """Zeros around an image's height and width; paddings by name are not supported."""
    assert not isinstance(module.padding, str)
    return module.padding


class BatchedConvolution(BatchedLayer[nn.Conv2d]):
    """What both convolutions share: sizes, bias, and patches of the padded image."""

    matrix_grad: Tensor

    def _bind_sizes(self, a: int, b: int, sides: tuple[int, ...]) -> None:
        module = self.module
        self.pool = self.context.pool
        self.kernel = module.kernel_size
        self.stride = module.stride
        self.padding = paddings(module)
        self.out = output_sides(module, sides)
        self.pooled_sides = tuple(side // window for side, window in zip(self.out, self.pool))
        self.weight = self.parameters[0].flatten(2)
        self.weight_grad = self.context.take("weight", self.weight.shape)
        self.bias = self.parameters[1] if module.bias is not None else None
        self.bias_grad = self.context.take("bias", (a, module.out_channels))

    def _windows(self, image: Tensor, dim: int) -> Tensor:
        """Patches of an image with height and width at `dim`, `dim + 1`, as a view: these two
        become (rows of cells, rows of a pooling window, columns of cells, columns of a pooling
        window), and (kh, kw) come last."""
        view = image.unfold(dim, self.kernel[0], self.stride[0]).unfold(
            dim + 1, self.kernel[1], self.stride[1]
        )
        return torch.unflatten(
            torch.unflatten(view, dim + 1, (-1, self.pool[1])), dim, (-1, self.pool[0])
        )

    def _inside(self, image: Tensor, dim: int) -> Tensor:
        """The image without its padding."""
        for i, padding in enumerate(self.padding):
            image = image.narrow(dim + i, padding, image.shape[dim + i] - 2 * padding)
        return image

    def _add_gradients(self, scale: float, bias_dim: int) -> None:
        self.targets[0].add_(self.weight_grad.view_as(self.targets[0]), alpha=scale)
        if self.bias is not None:
            torch.sum(self.matrix_grad, bias_dim, out=self.bias_grad)
            self.targets[1].add_(self.bias_grad, alpha=scale)


class BatchedInputConv2d(BatchedConvolution):
    """Convolution of the records (a, b, c, H, W): patches are taken once a batch, and no gradient
    goes below."""

    def bind(self) -> Tensor:
        (a, b, c, *sides), take = self.x.shape, self.context.take
        self._bind_sizes(a, b, tuple(sides))
        padded = [side + 2 * padding for side, padding in zip(sides, self.padding)]
        self.image = take("image", (a, b, c, *padded)) if any(self.padding) else self.x
        self.patches = take("patches", (a, c, *self.kernel, *self.pool, b, *self.pooled_sides))
        self.source = self._windows(self.image, 3).permute(0, 2, 7, 8, 4, 6, 1, 3, 5)
        pixels = math.prod(self.pool) * b * math.prod(self.pooled_sides)
        self.columns = self.patches.view(a, -1, pixels)
        self.matrix = take("y", (a, self.module.out_channels, pixels))
        return self.matrix.view(a, -1, math.prod(self.pool), b, *self.pooled_sides).permute(
            0, 2, 3, 4, 5, 1
        )

    def attach(self, grad: Tensor) -> Tensor:
        self.matrix_grad = grad.permute(0, 5, 1, 2, 3, 4).view_as(self.matrix)
        return grad

    def prepare(self) -> None:
        if self.image is not self.x:
            self.image.zero_()
            self._inside(self.image, 3).copy_(self.x)
        self.patches.copy_(self.source)

    def forward(self) -> None:
        if self.bias is None:
            torch.bmm(self.weight, self.columns, out=self.matrix)
        else:
            torch.baddbmm(self.bias.unsqueeze(2), self.weight, self.columns, out=self.matrix)

    def backward(self, scale: float) -> None:
        torch.bmm(self.matrix_grad, self.columns.transpose(1, 2), out=self.weight_grad)
        self._add_gradients(scale, bias_dim=2)


class BatchedConv2d(BatchedConvolution):
    """Convolution of images (a, 1, b, h, w, c)."""

    orders: ClassVar[dict[int, tuple[int, ...]]] = {4: (0, 2, 3, 1)}

    def bind(self) -> Tensor:
        (a, _, b, *sides, c), take = self.x.shape, self.context.take
        self._bind_sizes(a, b, tuple(sides))
        padded = [side + 2 * padding for side, padding in zip(sides, self.padding)]
        self.image = take("image", (a, b, *padded, c))
        self.inside = self._inside(self.image, 2).unsqueeze(1)
        self.patches = take("patches", (a, *self.pool, b, *self.pooled_sides, *self.kernel, c))
        self.source = self._windows(self.image, 2).permute(0, 3, 5, 1, 2, 4, 7, 8, 6)
        pixels = math.prod(self.pool) * b * math.prod(self.pooled_sides)
        self.rows, self.weight_t = self.patches.view(a, pixels, -1), self.weight.transpose(1, 2)
        self.matrix = take("y", (a, pixels, self.module.out_channels))
        self.folds = [self._fold(i, j) for i in range(self.kernel[0]) for j in range(self.out[1])]
        return self.matrix.view(a, math.prod(self.pool), b, *self.pooled_sides, -1)

    def _fold(self, row: int, column: int) -> tuple[Tensor, Tensor]:
        """Where row `row` of the patches in pixel column `column` lies in the image, and that row
        of the patches."""
        (down, right), pool = self.stride, self.pool
        target = self.image[:, :, row : row + down * (self.out[0] - 1) + 1 : down]
        target = torch.unflatten(target.narrow(3, column * right, self.kernel[1]), 2, (-1, pool[0]))
        source = self.patches[:, :, column % pool[1], :, :, column // pool[1], row]
        return target, source.permute(0, 2, 3, 1, 4, 5)

    def attach(self, grad: Tensor) -> Tensor:
        self.matrix_grad = grad.view_as(self.matrix)
        self.below = self.context.buffers.gradient_like(self.x)
        return self.below

    def forward(self) -> None:
        if any(self.padding):
            self.image.zero_()
        self.inside.copy_(self.x)
        self.patches.copy_(self.source)
        if self.bias is None:
            torch.bmm(self.rows, self.weight_t, out=self.matrix)
        else:
            torch.baddbmm(self.bias.unsqueeze(1), self.rows, self.weight_t, out=self.matrix)

    def backward(self, scale: float) -> None:
        torch.bmm(self.matrix_grad.transpose(1, 2), self.rows, out=self.weight_grad)
        # The patches are no longer needed: their gradient takes their memory.
        torch.bmm(self.matrix_grad, self.weight, out=self.rows)
        self.image.zero_()
        for target, source in self.folds:
            target.add_(source)
        self.below.copy_(self.inside)
        self._add_gradients(scale, bias_dim=1)


class BatchedMaxPool2d(BatchedLayer[nn.MaxPool2d]):
    """Maximum over the positions p of a window; of equal values the first one gets the gradient, as
    in torch."""

    keeps_output = True

    def bind(self) -> Tensor:
        self.positions = self.x.unbind(1)
        self.maximum = self.context.like("y", self.positions[0])
        return self.maximum.unsqueeze(1)

    def attach(self, grad: Tensor) -> Tensor:
        self.grad = grad.squeeze(1)
        self.below = self.context.buffers.gradient_like(self.x)
        self.shares = self.below.unbind(1)
        return self.below

    def forward(self) -> None:
        first, *others = self.positions
        for other in others:
            first = torch.maximum(first, other, out=self.maximum)

    def backward(self, scale: float) -> None:
        for position, share in zip(self.positions, self.shares):
            torch.sub(position, self.maximum, out=share)
            mask_where(self.grad, share, TINY, grad_input=share)
            self.grad.sub_(share)


class BatchedDropout2d(BatchedLayer[nn.Dropout2d]):
    """Drops whole channels of a record."""

    def bind(self) -> Tensor:
        a, _, b, _, _, c = self.x.shape
        p = self.module.p
        shape = (a, 1, b, 1, 1, c)
        self.words = self.context.take("words", shape, torch.int32)
        self.kept = self.context.take("kept", shape, torch.bool)
        self.mask = self.context.take("mask", shape)
        self.scale = self.x.new_tensor(1 / (1 - p) if p < 1 else 0.0)
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.gt(self.words, self.context.drop(self.words, self.module.p, 2), out=self.kept)
        torch.mul(self.kept, self.scale, out=self.mask)
        torch.mul(self.x, self.mask, out=self.y)

    def backward(self, scale: float) -> None:
        self.grad.mul_(self.mask)


class BatchedFlatten(BatchedLayer[nn.Flatten]):
    """Images (a, 1, b, h, w, c) to features (a, b, c h w)."""

    def bind(self) -> Tensor:
        a, _, b, h, w, c = self.x.shape
        self.images = self.x.squeeze(1).permute(0, 1, 4, 2, 3)
        y = self.context.take("y", (a, b, c * h * w))
        self.unfolded = y.view(a, b, c, h, w)
        return y

    def attach(self, grad: Tensor) -> Tensor:
        self.grad = grad.view_as(self.unfolded)
        below = self.context.buffers.gradient_like(self.x)
        self.below = below.squeeze(1).permute(0, 1, 4, 2, 3)
        return below

    def forward(self) -> None:
        self.unfolded.copy_(self.images)

    def backward(self, scale: float) -> None:
        self.below.copy_(self.grad)
