"""The contract of the three ways to train a block of users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from torch import Tensor

from fedpriv.training.schedule import Batch, Limits


class Road(ABC):
    """Trains the users of one block, all from the same starting parameters, one batch step at a time."""

    limits: Limits

    def train(self, users: int, batches: Iterable[Batch], lr: float) -> Tensor:
        """Final minus starting parameters of `users` users, (users, d), a tensor of its own."""
        self.begin(users)
        for batch in batches:
            self.step(batch, lr)
        return self.deltas()

    @abstractmethod
    def begin(self, users: int) -> None:
        """Give `users` networks the starting parameters."""

    @abstractmethod
    def step(self, batch: Batch, lr: float) -> None:
        """One SGD step of the first len(batch.x) users."""

    @abstractmethod
    def deltas(self) -> Tensor:
        """Final minus starting parameters of the block's users."""


def budget(theta: Tensor) -> int:
    """Bytes of a block: on a processor near its outer cache, else a small share of an accelerator's memory.

    Measured on one core: 32 MiB trains the MNIST CNN 20% faster than 16 MiB and as fast as 64; the MLP does not care
    from 8 MiB on.
    """
    return 2**30 if theta.is_cuda else 2**25
