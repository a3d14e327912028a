"""Fully connected layers of many users at once, with hand-written backward passes and plain SGD built in.

A layer is bound to a step's shape: a users (a prefix of the block's k), b rows each, activations (a, b, features). Its
views into the parameters and into reused buffers are made once; `forward` and `backward` then only run kernels, each
of which is one operation for all users. `backward` moves the layer's own parameters by one SGD step, so there is no
gradient tensor: the outer product lands on the weights.

No layer mixes users or rows. A padding row, whose loss gradient is zero, changes nothing, and a user that diverges
stays alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from fedpriv.training.space import Masks, Space

mask_where = torch.ops.aten.threshold_backward.grad_input
"""mask_where(g, v, t, grad_input=out): out = g where v > t, else 0. The only masking kernel that is one fast pass."""


@dataclass(frozen=True)
class Context:
    """What a layer may use while it is bound, and what is known of its place.

    in_place: whether x may be overwritten. first: whether nothing before this layer has parameters, so that nobody
    needs x's gradient. pool: window of the max-pooling that follows a convolution, (1, 1) without one.
    """

    space: Space
    masks: Masks
    index: int
    in_place: bool
    first: bool
    pool: tuple[int, int]

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """A contiguous buffer of this layer."""
        return self.space.take((self.index, name), shape, dtype)

    def like(self, name: str, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """A buffer of this layer with x's shape and order of dimensions in memory."""
        return self.space.like((self.index, name), x, dtype)

    def output_like(self, x: Tensor) -> Tensor:
        """The buffer of an elementwise layer's output: x's own, if it may be overwritten."""
        return x if self.in_place else self.like("y", x)


class Layer:
    """A layer bound to the activations `x` it reads; it writes `y`."""

    stored: ClassVar[dict[int, tuple[int, ...]]] = {}
    """By number of dimensions, the order in which the dimensions of one user's parameters are kept in `parameters`."""
    keeps_output = False
    """Whether `backward` needs y as `forward` left it, so that the next layer must not work in place."""

    def __init__(self, module: nn.Module, x: Tensor, parameters: list[Tensor], context: Context) -> None:
        """parameters: of the a active users, (a, ...) each, contiguous, in the module's order; updated in place."""
        self.module, self.x, self.parameters, self.context = module, x, parameters, context
        self.y = self.bind()

    def bind(self) -> Tensor:
        """Make all views and buffers; return y."""
        raise NotImplementedError

    def attach(self, grad: Tensor) -> Tensor:
        """Receive the buffer of y's gradient; return the buffer where x's gradient will be."""
        self.grad = grad
        return grad

    def prepare(self) -> None:
        """New input records arrived in x; called on the first layer only."""

    def forward(self) -> None:
        raise NotImplementedError

    def backward(self, lr: float) -> None:
        raise NotImplementedError


class Linear(Layer):
    """y = x W^T + b."""

    def bind(self) -> Tensor:
        a, b, _ = self.x.shape
        self.weight = self.parameters[0]
        self.weight_t = self.weight.transpose(1, 2)
        self.bias = self.parameters[1] if self.module.bias is not None else None
        if self.bias is not None:
            self.bias_rows, self.bias_grad = self.bias.unsqueeze(1), self.context.take("bias", self.bias.shape)
        return self.context.take("y", (a, b, self.module.out_features))

    def attach(self, grad: Tensor) -> Tensor:
        self.grad, self.grad_t = grad, grad.transpose(1, 2)
        self.below = grad if self.context.first else self.context.space.gradient_like(self.x)
        return self.below

    def forward(self) -> None:
        if self.bias is None:
            torch.bmm(self.x, self.weight_t, out=self.y)
        else:
            torch.baddbmm(self.bias_rows, self.x, self.weight_t, out=self.y)

    def backward(self, lr: float) -> None:
        if not self.context.first:
            torch.bmm(self.grad, self.weight, out=self.below)
        self.weight.baddbmm_(self.grad_t, self.x, alpha=-lr)
        if self.bias is not None:
            torch.sum(self.grad, 1, out=self.bias_grad)
            self.bias.sub_(self.bias_grad, alpha=lr)


class ReLU(Layer):
    keeps_output = True

    def bind(self) -> Tensor:
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.clamp_min(self.x, 0, out=self.y)

    def backward(self, lr: float) -> None:
        mask_where(self.grad, self.y, 0, grad_input=self.grad)


class GroupNorm(Layer):
    """GroupNorm with a single group on features: every row is centred, scaled to variance 1, then affine.

    The fused layer-norm kernels take twice as long as these passes on rows as short as ours.
    """

    def bind(self) -> Tensor:
        (a, b, c), take = self.x.shape, self.context.take
        self.normal, self.y = take("normal", self.x.shape), take("y", self.x.shape)
        self.mean, self.mean_of_product, self.rstd = (take(name, (a, b, 1)) for name in ("mean", "product", "rstd"))
        self.x_rows, self.product_rows = self.x.view(-1, c), self.y.view(-1, c)
        self.means, self.means_of_product = self.mean.view(-1, 1), self.mean_of_product.view(-1, 1)
        self.epsilon = self.x.new_tensor(self.module.eps)
        self.one_over_c = self.x.new_full((c, 1), 1 / c)
        if self.module.affine:
            self.gamma, self.beta = self.parameters
            self.gamma_rows, self.beta_rows = self.gamma.unsqueeze(1), self.beta.unsqueeze(1)
            self.gamma_grad, self.beta_grad = take("gamma", (a, c)), take("beta", (a, c))
        return self.y

    def attach(self, grad: Tensor) -> Tensor:
        self.grad, self.grad_rows = grad, grad.view(self.x_rows.shape)
        return grad

    def forward(self) -> None:
        torch.mm(self.x_rows, self.one_over_c, out=self.means)
        torch.sub(self.x, self.mean, out=self.normal)
        torch.linalg.vector_norm(self.normal, dim=-1, keepdim=True, out=self.rstd)
        torch.addcmul(self.epsilon, self.rstd, self.rstd, value=1 / self.x.shape[-1], out=self.rstd).rsqrt_()
        self.normal.mul_(self.rstd)
        if self.module.affine:
            torch.addcmul(self.beta_rows, self.normal, self.gamma_rows, out=self.y)
        else:
            self.y.copy_(self.normal)

    def backward(self, lr: float) -> None:
        grad, normal, product = self.grad, self.normal, self.y  # y is spent: use its memory
        torch.mul(grad, normal, out=product)
        if self.module.affine:
            torch.sum(grad, 1, out=self.beta_grad)
            torch.sum(product, 1, out=self.gamma_grad)
            grad.mul_(self.gamma_rows)
            product.mul_(self.gamma_rows)
            self.beta.sub_(self.beta_grad, alpha=lr)
            self.gamma.sub_(self.gamma_grad, alpha=lr)
        # dx = (g - mean(g) - n mean(g n)) / std, with g the gradient of the normalised row n
        torch.mm(self.grad_rows, self.one_over_c, out=self.means)
        torch.mm(self.product_rows, self.one_over_c, out=self.means_of_product)
        grad.sub_(self.mean).sub_(normal.mul_(self.mean_of_product)).mul_(self.rstd)


class Dropout(Layer):
    def bind(self) -> Tensor:
        p, y = self.module.p, self.context.output_like(self.x)
        self.mask = self.context.like("mask", y, torch.int32)
        self.scale = self.x.new_tensor(1 / (1 - p) if p < 1 else 0.0)
        self.x_words, self.y_words = self.x.view(torch.int32), y.view(torch.int32)
        return y

    def attach(self, grad: Tensor) -> Tensor:
        self.grad, self.grad_words = grad, grad.view(torch.int32)
        return grad

    def forward(self) -> None:
        self.threshold = self.context.masks.draw(self.mask, self.module.p)
        mask_where(self.x_words, self.mask, self.threshold, grad_input=self.y_words)
        self.y.mul_(self.scale)

    def backward(self, lr: float) -> None:
        mask_where(self.grad_words, self.mask, self.threshold, grad_input=self.grad_words)
        self.grad.mul_(self.scale)


class Ball(Layer):
    """Input records longer than the radius are scaled down to it; nothing before it needs a gradient."""

    def bind(self) -> Tensor:
        self.norm = self.context.take("norm", (*self.x.shape[:2], 1))
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.linalg.vector_norm(self.x, dim=-1, keepdim=True, out=self.norm)
        self.norm.clamp_min_(self.module.radius).reciprocal_().mul_(self.module.radius)
        torch.mul(self.x, self.norm, out=self.y)

    def backward(self, lr: float) -> None:
        pass


class Flatten(Layer):
    """(a, b, ...) to (a, b, features), of the input records."""

    keeps_output = True

    def bind(self) -> Tensor:
        return self.x.flatten(2)

    def forward(self) -> None:
        pass

    def backward(self, lr: float) -> None:
        pass
