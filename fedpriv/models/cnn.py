"""Convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpriv.errors import ConfigError, require
from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MnistCnn(Model):
    """Two convolutions of kernel 5 with max-pooling, two linear layers, raw logits.

    channels: output channels of the two convolutions.
    hidden: width of the linear layer between.
    dropout: probability of dropping a channel after the second convolution and a unit of the hidden
        layer.

    `channels=[10, 20], hidden=50, dropout=0.5` on 28 x 28 grey images is the MNIST network of Kato
    et al., Uldp-FL (PVLDB 2024), with 21840 parameters. It ends with a log-softmax there, which
    cross-entropy on logits does anyway.
    """

    channels: list[int]
    hidden: int
    dropout: float

    def __post_init__(self) -> None:
        fits = len(self.channels) == 2 and all(c >= 1 for c in self.channels)
        require(fits, "model.channels", self.channels, "two positive numbers of channels")
        require(self.hidden >= 1, "model.hidden", self.hidden, "a positive width")
        require(
            0 <= self.dropout < 1, "model.dropout", self.dropout, "a probability from 0 to below 1"
        )

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        first, second = self.channels
        return nn.Sequential(
            nn.Conv2d(shape[0], first, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(first, second, 5),
            nn.Dropout2d(self.dropout),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(self._features(shape), self.hidden),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden, outputs),
        )

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        first, second = self.channels
        convolutions = (25 * shape[0] + 1) * first + (25 * first + 1) * second
        return (
            convolutions + (self._features(shape) + 1) * self.hidden + (self.hidden + 1) * outputs
        )

    def _features(self, shape: tuple[int, ...]) -> int:
        return self.channels[1] * _cells(shape, "mnist_cnn")


@dataclass(frozen=True)
class CifarCnn(Model):
    """Two convolutions, each followed by ReLU and max-pooling, and linear layers, raw logits.

    channels: output channels of the two convolutions.
    hidden: widths of the linear layers before the outputs.
    kernels: sides of the convolutions' windows.

    `channels=[6, 16], hidden=[120, 84]` on 32 x 32 colour images is the CIFAR-10 network of Lowy,
    Ghafelebashi, Razaviyayn (AISTATS 2023), with 62006 parameters; `channels=[32, 64],
    hidden=[512], kernels=[5, 2]` on 28 x 28 grey images the FEMNIST network of Jeon et al.
    (SecureD-FL, 2021), with 833930.
    """

    channels: list[int]
    hidden: list[int]
    kernels: list[int] = field(default_factory=lambda: [5, 5])

    def __post_init__(self) -> None:
        fits = len(self.channels) == 2 and all(c >= 1 for c in self.channels)
        require(fits, "model.channels", self.channels, "two positive numbers of channels")
        require(
            all(width >= 1 for width in self.hidden),
            "model.hidden",
            self.hidden,
            "a list of positive widths",
        )
        windows = len(self.kernels) == 2 and all(1 <= kernel <= 5 for kernel in self.kernels)
        require(windows, "model.kernels", self.kernels, "two sides of windows from 1 to 5")

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = []
        for (before, after), kernel in zip(pairwise([shape[0], *self.channels]), self.kernels):
            layers += [nn.Conv2d(before, after, kernel), nn.ReLU(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        widths = self._widths(shape, outputs)
        for before, after in pairwise(widths[:-1]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-2], outputs))

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        channels = zip(pairwise([shape[0], *self.channels]), self.kernels)
        convolutions = sum((kernel**2 * before + 1) * after for (before, after), kernel in channels)
        return convolutions + sum(
            (before + 1) * after for before, after in pairwise(self._widths(shape, outputs))
        )

    def _widths(self, shape: tuple[int, ...], outputs: int) -> list[int]:
        """Of what the linear layers read and the last one writes."""
        return [self.channels[1] * _cells(shape, "cifar_cnn", self.kernels), *self.hidden, outputs]


def _cells(shape: tuple[int, ...], name: str, kernels: Sequence[int] = (5, 5)) -> int:
    """Numbers that a channel of the second convolution makes of a record, after max-pooling."""
    if len(shape) != 3 or min(shape[1:]) < 16:
        raise ConfigError(
            "model", name, f"images of 16 x 16 pixels or more, not records of shape {shape}"
        )
    first, second = kernels
    height, width = (((side - first + 1) // 2 - second + 1) // 2 for side in shape[1:])
    return height * width
