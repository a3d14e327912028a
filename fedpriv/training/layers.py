"""Layers of k networks at once, with hand-written backward passes and plain SGD built in.

Every layer works on activations of shape (a, b, ...): a active users (a prefix of the k of the block), b rows each.
`backward` takes the gradient of the outputs, moves the layer's own parameters one SGD step (there is no gradient
buffer: the outer product lands on the weights), and returns the gradient of its inputs. No layer mixes rows or users,
so a padding row whose loss gradient is zero changes nothing, and a user that diverges stays alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

aten = torch.ops.aten


class Layer:
    """A layer without parameters; `shapes` lists the parameters of one user in the order of `named_parameters()`."""

    shapes: tuple[tuple[int, ...], ...] = ()
    first = False
    """Whether nothing before this layer has parameters, so that nobody needs the gradient of its inputs."""

    def start(self, parameters: list[Tensor]) -> None:
        """Take the block's parameters, one contiguous (k, *shape) tensor for each of `shapes`; updated in place."""

    def prepare(self, x: Tensor) -> Tensor:
        """What `forward` wants of a network's inputs, when this is its first layer; may be reused while x stays."""
        return x

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def backward(self, grad: Tensor, lr: float) -> Tensor | None:
        raise NotImplementedError


class Linear(Layer):
    """y = x W^T + b on (a, b, in)."""

    def __init__(self, module: nn.Linear) -> None:
        self.shapes = tuple(tuple(p.shape) for p in module.parameters())

    def start(self, parameters: list[Tensor]) -> None:
        self.weight, self.bias = parameters[0], parameters[1] if len(parameters) > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        self.x, weight = x, self.weight[: len(x)].transpose(1, 2)
        if self.bias is None:
            return torch.bmm(x, weight)
        return torch.baddbmm(self.bias[: len(x)].unsqueeze(1), x, weight)

    def backward(self, grad: Tensor, lr: float) -> Tensor | None:
        weight = self.weight[: len(grad)]
        below = None if self.first else torch.bmm(grad, weight)
        weight.baddbmm_(grad.transpose(1, 2), self.x, alpha=-lr)
        if self.bias is not None:
            self.bias[: len(grad)].sub_(grad.sum(1), alpha=lr)
        return below


class ReLU(Layer):
    def __init__(self, module: nn.ReLU) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        self.y = torch.relu(x)
        return self.y

    def backward(self, grad: Tensor, lr: float) -> Tensor:
        return aten.threshold_backward(grad, self.y, 0)


class GroupNorm(Layer):
    """GroupNorm with one group on features (a, b, c): each row is centred, scaled to variance 1, then affine."""

    def __init__(self, module: nn.GroupNorm) -> None:
        self.c, self.eps = module.num_channels, module.eps
        self.shapes = tuple(tuple(p.shape) for p in module.parameters())

    def start(self, parameters: list[Tensor]) -> None:
        self.gamma, self.beta = parameters
        self.average = self.gamma.new_full((self.c, 1), 1 / self.c)
        self.epsilon = self.gamma.new_tensor(self.eps)

    def forward(self, x: Tensor) -> Tensor:
        # The fused layer-norm kernel takes twice as long as these five on rows as short as ours.
        a = len(x)
        self.x, self.mean = x, torch.mm(x.view(-1, self.c), self.average).view(a, -1, 1)
        centred = x - self.mean
        norm = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
        self.rstd = torch.addcmul(self.epsilon, norm, norm, value=1 / self.c).rsqrt_()
        self.normal = centred.mul_(self.rstd)
        return torch.addcmul(self.beta[:a].unsqueeze(1), self.normal, self.gamma[:a].unsqueeze(1))

    def backward(self, grad: Tensor, lr: float) -> Tensor:
        gamma, beta = self.gamma[: len(grad)], self.beta[: len(grad)]
        below = grad * gamma.unsqueeze(1)
        gamma.sub_(self.normal.mul_(grad).sum(1), alpha=lr)
        beta.sub_(grad.sum(1), alpha=lr)
        return aten.native_layer_norm_backward(
            below, self.x, [self.c], self.mean, self.rstd, None, None, [True, False, False]
        )[0]


class Masks:
    """Bernoulli masks as int32 words of which only the sign counts, from one generator."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator
        self.pool = torch.empty(0, dtype=torch.int32, device=generator.device)
        self.used = 32

    def words(self, n: int) -> Tensor:
        return (
            torch.empty((n + 1) // 2, dtype=torch.int64, device=self.generator.device)
            .random_(-(2**63), None, generator=self.generator)
            .view(torch.int32)[:n]
        )

    def coins(self, n: int) -> Tensor:
        """n fair coins: nonnegative or negative words. Bits of one random word are independent: use all 32."""
        if self.used == 32 or len(self.pool) < n:
            self.pool, self.used = self.words(max(n, len(self.pool))), 0
        self.used += 1
        return torch.bitwise_left_shift(self.pool[:n], self.used - 1)


class Dropout(Layer):
    def __init__(self, module: nn.Dropout, masks: Masks) -> None:
        self.p, self.masks = module.p, masks

    def forward(self, x: Tensor) -> Tensor:
        self.threshold = -1
        if self.p == 0.5:
            self.mask = self.masks.coins(x.numel()).view(x.shape)
        else:
            self.mask = self.masks.words(x.numel()).view(x.shape)
            self.threshold = round(self.p * 2**32) - 2**31 - 1
        return self.backward(x, 0.0)

    def backward(self, grad: Tensor, lr: float) -> Tensor:
        kept = aten.threshold_backward(grad.view(torch.int32), self.mask, self.threshold)
        return kept.view(torch.float32).mul_(1 / (1 - self.p))
