"""Fully connected layers of many users at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.layers.batched import BatchedLayer, mask_where
from fedpriv.training.layers.parts import Sum


class BatchedLinear(BatchedLayer[nn.Linear]):
    """y = x W^T + b."""

    def bind(self) -> Tensor:
        a, b, _ = self.x.shape
        self.weight = self.parameters[0]
        self.weight_t = self.weight.transpose(1, 2)
        self.biased = len(self.parameters) == 2
        if self.biased:
            self.bias_rows = self.parameters[1].unsqueeze(1)
            self.bias_grad = self.context.take("bias", self.parameters[1].shape)
        return self.context.take("y", (a, b, self.module.out_features))

    def attach(self, grad: Tensor) -> Tensor:
        self.grad = grad
        self.grad_t = grad.transpose(1, 2)
        self.below = grad if self.context.first else self.context.buffers.gradient_like(self.x)
        return self.below

    def forward(self) -> None:
        if not self.biased:
            torch.bmm(self.x, self.weight_t, out=self.y)
        else:
            torch.baddbmm(self.bias_rows, self.x, self.weight_t, out=self.y)

    def backward(self, scale: float) -> None:
        if not self.context.first:
            torch.bmm(self.grad, self.weight, out=self.below)
        self.targets[0].baddbmm_(self.grad_t, self.x, alpha=scale)
        if self.biased:
            torch.sum(self.grad, 1, out=self.bias_grad)
            self.targets[1].add_(self.bias_grad, alpha=scale)


class BatchedReLU(BatchedLayer[nn.ReLU]):
    keeps_output = True

    def bind(self) -> Tensor:
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.clamp_min(self.x, 0, out=self.y)

    def backward(self, scale: float) -> None:
        mask_where(self.grad, self.y, 0, grad_input=self.grad)


class BatchedGroupNorm(BatchedLayer[nn.GroupNorm]):
    """GroupNorm with a single group on features: every row is centred, scaled to variance 1, then
    affine.

    On rows as short as ours torch's fused layer-norm kernels take twice as long as these passes.
    """

    def bind(self) -> Tensor:
        (a, b, c), take = self.x.shape, self.context.take
        self.normal = take("normal", self.x.shape)
        self.y = take("y", self.x.shape)
        self.mean, self.mean_of_product, self.rstd = (
            take(name, (a, b, 1)) for name in ("mean", "product", "rstd")
        )
        self.x_rows, self.product_rows = self.x.view(-1, c), self.y.view(-1, c)
        self.means, self.means_of_product = self.mean.view(-1, 1), self.mean_of_product.view(-1, 1)
        self.epsilon = self.x.new_tensor(self.module.eps)
        self.one_over_c = self.x.new_full((c, 1), 1 / c)
        if self.module.affine:
            self.gamma_rows, self.beta_rows = (
                parameter.unsqueeze(1) for parameter in self.parameters
            )
            self.gamma_grad = take("gamma", (a, c))
            self.beta_grad = take("beta", (a, c))
        return self.y

    def attach(self, grad: Tensor) -> Tensor:
        self.grad = grad
        self.grad_rows = grad.view(self.x_rows.shape)
        return grad

    def forward(self) -> None:
        torch.mm(self.x_rows, self.one_over_c, out=self.means)
        torch.sub(self.x, self.mean, out=self.normal)
        torch.linalg.vector_norm(self.normal, dim=-1, keepdim=True, out=self.rstd)
        torch.addcmul(
            self.epsilon, self.rstd, self.rstd, value=1 / self.x.shape[-1], out=self.rstd
        ).rsqrt_()
        self.normal.mul_(self.rstd)
        if self.module.affine:
            torch.addcmul(self.beta_rows, self.normal, self.gamma_rows, out=self.y)
        else:
            self.y.copy_(self.normal)

    def backward(self, scale: float) -> None:
        grad = self.grad
        normal = self.normal
        product = self.y  # y is no longer needed: reuse its memory
        torch.mul(grad, normal, out=product)
        if self.module.affine:
            torch.sum(grad, 1, out=self.beta_grad)
            torch.sum(product, 1, out=self.gamma_grad)
            grad.mul_(self.gamma_rows)
            product.mul_(self.gamma_rows)
            self.targets[1].add_(self.beta_grad, alpha=scale)
            self.targets[0].add_(self.gamma_grad, alpha=scale)
        # dx = (g - mean(g) - n mean(g n)) / std, with g the gradient of the normalised row n
        torch.mm(self.grad_rows, self.one_over_c, out=self.means)
        torch.mm(self.product_rows, self.one_over_c, out=self.means_of_product)
        grad.sub_(self.mean).sub_(normal.mul_(self.mean_of_product)).mul_(self.rstd)


class BatchedDropout(BatchedLayer[nn.Dropout]):
    """On features (a, b, c) and on images (a, positions, b, h, w, c)."""

    def bind(self) -> Tensor:
        p = self.module.p
        y = self.context.output_like(self.x)
        self.mask = self.context.like("mask", y, torch.int32)
        self.scale = self.x.new_tensor(1 / (1 - p) if p < 1 else 0.0)
        self.x_words = self.x.view(torch.int32)
        self.y_words = y.view(torch.int32)
        return y

    def attach(self, grad: Tensor) -> Tensor:
        self.grad = grad
        self.grad_words = grad.view(torch.int32)
        return grad

    def forward(self) -> None:
        self.threshold = self.context.drop(self.mask, self.module.p, 1 if self.x.dim() == 3 else 2)
        mask_where(self.x_words, self.mask, self.threshold, grad_input=self.y_words)
        self.y.mul_(self.scale)

    def backward(self, scale: float) -> None:
        mask_where(self.grad_words, self.mask, self.threshold, grad_input=self.grad_words)
        self.grad.mul_(self.scale)


class BatchedL2Projection(BatchedLayer[L2Projection]):
    """Records longer than the radius are scaled down to it. No layer before it has parameters, so
    there is no backward pass."""

    def bind(self) -> Tensor:
        self.norm = self.context.take("norm", (*self.x.shape[:2], 1))
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.linalg.vector_norm(self.x, dim=-1, keepdim=True, out=self.norm)
        self.norm.clamp_min_(self.module.radius).reciprocal_().mul_(self.module.radius)
        torch.mul(self.x, self.norm, out=self.y)

    def backward(self, scale: float) -> None:
        pass


class BatchedSum(BatchedLayer[Sum]):
    """x plus what an earlier layer wrote, or the records themselves: a residual sum.

    kept: the gradient of the earlier layer's output by way of this sum; `Program` adds it.
    """

    def bind(self) -> Tensor:
        assert self.context.other is not None
        self.other = self.context.other
        self.kept = self.context.take("kept", tuple(self.x.shape))
        return self.context.output_like(self.x)

    def forward(self) -> None:
        torch.add(self.x, self.other, out=self.y)

    def backward(self, scale: float) -> None:
        self.kept.copy_(self.grad)


class BatchedInputFlatten(BatchedLayer[nn.Flatten]):
    """The input records (a, b, ...) as features (a, b, n)."""

    keeps_output = True

    def bind(self) -> Tensor:
        return self.x.flatten(2)

    def forward(self) -> None:
        pass

    def backward(self, scale: float) -> None:
        pass
