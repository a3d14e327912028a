"""Networks of a user's own, and data sets of a few records in memory: `model._target_` and
`data._target_` name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.data.base import Corpus, DataSet, Records
from fedpriv.models import Model
from fedpriv.models.tasks import Classification, Task
from fedpriv.util.streams import Streams

RECORDS = 48
CLASSES = 3


class LastState(nn.Module):
    """A recurrent layer over a record's features, one a step, and a linear layer."""

    def __init__(self, layer: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.layer = layer
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.layer(x.flatten(1)[..., None])
        return self.linear(states[:, -1])


class Attention(nn.Module):
    """One encoder layer over a record's features."""

    def __init__(self, outputs: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Linear(1, 4)
        self.layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=dropout, batch_first=True)
        self.linear = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.layer(self.embed(x.flatten(1)[..., None])).mean(1))


class Residual(nn.Module):
    """A forward pass that is no chain of layers."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.last = nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return self.last(self.scale * torch.tanh(self.first(x)) + x)


@dataclass(frozen=True)
class OwnModel(Model):
    """A network of the classes above, whose size is counted on a built one."""

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        with torch.random.fork_rng(devices=[]):
            network = self.build(shape, outputs)
        return sum(parameter.numel() for parameter in network.parameters())


@dataclass(frozen=True)
class Lstm(OwnModel):
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return LastState(nn.LSTM(1, 3, batch_first=True), 3, outputs)


@dataclass(frozen=True)
class Gru(OwnModel):
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return LastState(nn.GRU(1, 3, batch_first=True), 3, outputs)


@dataclass(frozen=True)
class Transformer(OwnModel):
    dropout: float = 0.0

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Attention(outputs, self.dropout)


@dataclass(frozen=True)
class OwnForward(OwnModel):
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Residual(int(np.prod(shape)), outputs)


class Branches(nn.Linear):
    """A forward pass that depends on values: it cannot be captured."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        return super().forward(x if x.sum() > 0 else -x)


@dataclass(frozen=True)
class Branching(OwnModel):
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return Branches(int(np.prod(shape)), outputs)


class Small(DataSet):
    """Records of three classes, drawn from the seed."""

    outputs: ClassVar[int] = CLASSES
    task: ClassVar[Task] = Classification()

    def load(self, streams: Streams) -> Corpus:
        own = streams.generator("small records")
        y = own.permutation(np.arange(RECORDS) % self.outputs)
        x = own.integers(CLASSES, size=(RECORDS, *self.shape))
        if not self.text:
            x = (x + y.reshape(-1, *[1] * len(self.shape))).astype(np.float32)
        return Corpus(Records(x[9:], y[9:]), Records(x[:9], y[:9]))


@dataclass(frozen=True)
class Table(Small):
    shape: ClassVar[tuple[int, ...]] = (5,)


@dataclass(frozen=True)
class Digit(Small):
    shape: ClassVar[tuple[int, ...]] = (1, 28, 28)


@dataclass(frozen=True)
class Photograph(Small):
    shape: ClassVar[tuple[int, ...]] = (3, 32, 32)


@dataclass(frozen=True)
class Text(Small):
    shape: ClassVar[tuple[int, ...]] = (6,)
    text: ClassVar[bool] = True
