"""Operations of a `forward` as layers: what networks of their own do between torch's layers; and
the windows of convolutions and pooling layers."""

from __future__ import annotations

from torch import Tensor, nn


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of a window."""
    return value if isinstance(value, tuple) else (value, value)


def tiles(pool: nn.MaxPool2d) -> tuple[int, int]:
    """Its window, if windows lie side by side; else (1, 1)."""
    kernel = pair(pool.kernel_size)
    beside = kernel == pair(pool.stride) and pair(pool.padding) == (0, 0)
    plain = pair(pool.dilation) == (1, 1) and not pool.ceil_mode
    return kernel if beside and plain else (1, 1)


def output_sides(module: nn.Conv2d, sides: tuple[int, ...]) -> tuple[int, ...]:
    """Height and width of a convolution's output."""
    parts = zip(sides, paddings(module), module.kernel_size, module.stride)
    return tuple((side + 2 * zeros - kernel) // step + 1 for side, zeros, kernel, step in parts)


def paddings(module: nn.Conv2d) -> tuple[int, ...]:
    """Zeros around an image's height and width; paddings by name are not supported."""
    assert not isinstance(module.padding, str)
    return module.padding


class Sum(nn.Module):
    """The sum of two values of equal shapes."""

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return one + other


class Reshape(nn.Module):
    """Each record's numbers in the same order and another shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), *self.shape)


class LastStep(nn.Module):
    """The last step of sequences (b, steps, features)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


class MeanOfSteps(nn.Module):
    """The mean over the steps of sequences (b, steps, features)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class AddedParameter(nn.Module):
    """Adds a parameter (..., steps, features), such as embeddings of positions, to sequences."""

    def __init__(self, own: nn.Parameter) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        return x + self.own


class Recurrence(nn.Module):
    """The states (b, steps, features) of a recurrent layer of torch, one layer in one direction."""

    def __init__(self, cell: nn.RNNBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.cell(x)[0]
        return states


class SelfAttention(nn.Module):
    """Attention of sequences (b, steps, features) to themselves, without a mask."""

    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return found
