"""The contract of the three ways to train a block of users."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor

from fedpriv.training.schedule import Batch, Limits


class Road(ABC):
    """Trains the users of one block, all starting from the same parameters, one batch step at a time."""

    limits: Limits

    @abstractmethod
    def begin(self, users: int) -> None:
        """Give `users` networks the starting parameters."""

    @abstractmethod
    def step(self, batch: Batch, lr: float) -> None:
        """One SGD step of the first len(batch.x) users."""

    @abstractmethod
    def deltas(self) -> Tensor:
        """Final minus starting parameters of the block's users, (users, d), a tensor of its own."""
