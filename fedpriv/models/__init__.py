"""The base of all models: frozen configurations that build a torch module for a data set's
shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Model(ABC):
    """A network by its configuration. It implements `build`:

    >>> class Average(Model):
    ...     def build(self, shape, outputs):
    ...         from torch import nn
    ...         return nn.Sequential(nn.AvgPool1d(shape[0]), nn.Linear(1, outputs))
    >>> network = Average().build(shape=(30,), outputs=2)
    >>> sum(parameter.numel() for parameter in network.parameters())
    4
    >>> Average().size(shape=(30,), outputs=2)
    4
    """

    @abstractmethod
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """A module that maps a batch (b, *shape) to (b, outputs). Initial weights come from torch's
        global generator, which the caller seeds.

        shape: shape of one record's features.
        outputs: width of the model's output.

        Raises ConfigError (key `model`) for a shape that the network cannot take.
        """

    def size(self, shape: tuple[int, ...], outputs: int) -> int:
        """Number of parameters of the module from `build`. By default they are counted, which
        loads torch; fedpriv's own models compute it. Raises as `build` does."""
        import torch

        with torch.device("meta"):  # shapes without numbers
            return sum(parameter.numel() for parameter in self.build(shape, outputs).parameters())

    @property
    def reads_text(self) -> bool:
        """Whether the features are numbers of characters, not measurements."""
        return False

    @property
    def mixes_records(self) -> bool:
        """Whether a record's output depends on the other records of its batch, as under batch
        normalisation."""
        return False

    def score_norm(self, feature_norm: float) -> float | None:
        """For networks that are linear in their parameters: a bound on the L2 norm of the vector
        whose inner product with an output's parameters is that output, for records of L2 norm at
        most `feature_norm`. None for other networks."""
        return None


def linear_size(*widths: int) -> int:
    """Number of parameters of linear layers with biases from the first of `widths` to the last."""
    return sum((before + 1) * after for before, after in pairwise(widths))


@dataclass(frozen=True)
class Network:
    """What each process builds its own copy of the network from. Parties of one process share one.

    model: the network's class and settings.
    shape: of one record's features.
    outputs: number of outputs.
    seed: of the initial weights.
    """

    model: Model
    shape: tuple[int, ...]
    outputs: int
    seed: int

    @cached_property
    def module(self) -> nn.Module:
        """The network on the CPU, where its weights are drawn, so that every device starts from the
        same ones."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            return self.model.build(self.shape, self.outputs)
