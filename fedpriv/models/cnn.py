"""Convolutional networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.errors import ConfigError, require
from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class MnistCnn(Model):
    """Two convolutions of kernel 5 with max-pooling, two linear layers, raw logits.

    channels: output channels of the two convolutions. hidden: width of the linear layer between.
    dropout: probability of dropping a channel after the second convolution and a unit of the hidden layer.

    `channels=[10, 20], hidden=50, dropout=0.5` on 28 x 28 grey images is the MNIST network of Kato et al., Uldp-FL
    (PVLDB 2024), with 21840 parameters. It ends with a log-softmax there, which cross-entropy on logits does anyway.
    """

    channels: list[int]
    hidden: int
    dropout: float

    def __post_init__(self) -> None:
        fits = len(self.channels) == 2 and all(c >= 1 for c in self.channels)
        require(fits, "model.channels", self.channels, "two positive numbers of channels")
        require(self.hidden >= 1, "model.hidden", self.hidden, "a positive width")
        require(0 <= self.dropout < 1, "model.dropout", self.dropout, "a probability from 0 to below 1")

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
        return convolutions + (self._features(shape) + 1) * self.hidden + (self.hidden + 1) * outputs

    def _features(self, shape: tuple[int, ...]) -> int:
        """Numbers that the convolutions make of a record."""
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise ConfigError("model", "mnist_cnn", f"images of 16 x 16 pixels or more, not records of shape {shape}")
        height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
        return self.channels[1] * height * width
