"""Convolutional networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from fedpriv.errors import require
from fedpriv.models import Model, linear_size

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MnistCnn(Model):
    """Two convolutions of kernel 5 with max-pooling, two linear layers, raw logits.

    channels: output channels of the two convolutions.
    hidden: width of the hidden linear layer.
    dropout: probability of dropping a channel after the second convolution, and a unit of the
        hidden layer.

    With `channels=[10, 20], hidden=50, dropout=0.5` and 28 x 28 grey images it is the MNIST network
    of Kato et al., Uldp-FL (PVLDB 2024), with 21840 parameters. Their network ends with a
    log-softmax; here, the cross-entropy on logits includes it.
    """

    channels: list[int]
    hidden: int
    dropout: float

    def __post_init__(self) -> None:
        _check_channels(self.channels)
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
            nn.Linear(_features(shape, "mnist_cnn", self.channels), self.hidden),
            nn.ReLU(),
            nn.Dropout(self.dropout),
            nn.Linear(self.hidden, outputs),
        )

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        features = _features(shape, "mnist_cnn", self.channels)
        linear = linear_size(features, self.hidden, outputs)
        return _convolutions_size(shape[0], self.channels) + linear


@dataclass(frozen=True)
class CifarCnn(Model):
    """Two convolutions, each followed by ReLU and max-pooling, then linear layers, raw logits.

    channels: output channels of the two convolutions.
    hidden: widths of the linear layers before the outputs.
    kernels: kernel sizes of the two convolutions.

    With `channels=[6, 16], hidden=[120, 84]` and 32 x 32 colour images it is the CIFAR-10 network
    of Lowy, Ghafelebashi, Razaviyayn (AISTATS 2023), with 62006 parameters. With `channels=[32,
    64], hidden=[512], kernels=[5, 2]` and 28 x 28 grey images it is the FEMNIST network of Jeon et
    al. (SecureD-FL, 2021), with 833930.
    """

    channels: list[int]
    hidden: list[int]
    kernels: list[int] = field(default_factory=lambda: [5, 5])

    def __post_init__(self) -> None:
        _check_channels(self.channels)
        positive = all(width >= 1 for width in self.hidden)
        require(positive, "model.hidden", self.hidden, "a list of positive widths")
        fits = len(self.kernels) == 2 and all(1 <= kernel <= 5 for kernel in self.kernels)
        require(fits, "model.kernels", self.kernels, "two kernel sizes from 1 to 5")

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        from torch import nn

        layers: list[nn.Module] = []
        for (before, after), kernel in zip(pairwise([shape[0], *self.channels]), self.kernels):
            layers += [nn.Conv2d(before, after, kernel), nn.ReLU(), nn.MaxPool2d(2)]
        layers.append(nn.Flatten())
        widths = [_features(shape, "cifar_cnn", self.channels, self.kernels), *self.hidden]
        for before, after in pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        features = _features(shape, "cifar_cnn", self.channels, self.kernels)
        linear = linear_size(features, *self.hidden, outputs)
        return _convolutions_size(shape[0], self.channels, self.kernels) + linear


def _check_channels(channels: Sequence[int]) -> None:
    fits = len(channels) == 2 and all(number >= 1 for number in channels)
    require(fits, "model.channels", channels, "two positive numbers of channels")


def _convolutions_size(
    colours: int, channels: Sequence[int], kernels: Sequence[int] = (5, 5)
) -> int:
    """Number of parameters of the two convolutions."""
    first, second = (kernel**2 for kernel in kernels)
    return (first * colours + 1) * channels[0] + (second * channels[0] + 1) * channels[1]


def _features(
    shape: tuple[int, ...], name: str, channels: Sequence[int], kernels: Sequence[int] = (5, 5)
) -> int:
    """Number of features after the second max-pooling. Raises ConfigError for other records than
    images of 16 x 16 pixels or more."""
    allowed = f"images of 16 x 16 pixels or more, not records of shape {shape}"
    require(len(shape) == 3 and min(shape[1:]) >= 16, "model", name, allowed)
    first, second = kernels
    height, width = (((side - first + 1) // 2 - second + 1) // 2 for side in shape[1:])
    return channels[1] * height * width
