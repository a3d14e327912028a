"""A network from its description, the same in every process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fedpriv.models import Model

if TYPE_CHECKING:
    from torch import nn


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
