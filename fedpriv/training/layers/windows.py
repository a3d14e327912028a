"""Windows of pooling layers and convolutions."""

from __future__ import annotations

from torch import nn


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
