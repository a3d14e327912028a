"""The records of one silo, sorted by user, as tensors on the training device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

    from fedpriv.data.allocate import Allocation
    from fedpriv.data.base import Records


@dataclass(frozen=True)
class SiloData:
    """One silo's training records, sorted by user; the records of a user keep their data-set order.

    x: (n, ...) tensor of floats or integers: features.
    y: (n, ...) tensor on the same device: labels.
    users: (k,) int64: global ids of the users with records here, ascending.
    starts: (k + 1,) int64: user users[i] owns rows starts[i]:starts[i + 1].
    records: (n,) int64: the records' numbers in the data set (`Records.number`), which name their
        random draws; by default 0 to n - 1.
    """

    x: torch.Tensor
    y: torch.Tensor
    users: np.ndarray
    starts: np.ndarray
    records: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        if not len(self.records):
            object.__setattr__(self, "records", np.arange(len(self.x)))

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of records of each user in `users`, (k,) int64."""
        return np.diff(self.starts)

    @cached_property
    def label_range(self) -> tuple[int, int]:
        """The least and the largest label of classes; (0, 0) without records."""
        if not len(self.y):
            return 0, 0
        least, most = self.y.aminmax()
        return int(least), int(most)

    def rows(self, user: int) -> slice:
        """Rows of the user at this index in `users`."""
        return slice(int(self.starts[user]), int(self.starts[user + 1]))

    def to(self, device: str) -> SiloData:
        """The same records on `device`."""
        return replace(self, x=self.x.to(device), y=self.y.to(device))

    def pooled(self) -> SiloData:
        """The same records with a single owner (id 0), for algorithms that train on the whole
        silo."""
        rows = len(self.x)
        users = np.zeros(min(rows, 1), dtype=np.int64)
        starts = np.unique([0, rows]).astype(np.int64)
        return replace(self, users=users, starts=starts)


def split_by_silo(records: Records, allocation: Allocation, device: str) -> list[SiloData]:
    """One `SiloData` per silo with its training records; features and labels keep their types."""
    import torch

    trains = np.flatnonzero(allocation.trains)
    trains = trains[np.lexsort((allocation.user[trains], allocation.silo[trains]))]
    silos = []
    for rows in np.split(trains, np.cumsum(allocation.silo_sizes())[:-1]):
        users, counts = np.unique(allocation.user[rows], return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        x = torch.from_numpy(np.ascontiguousarray(records.x[rows])).to(device)
        y = torch.from_numpy(np.ascontiguousarray(records.y[rows])).to(device)
        numbers = rows if records.number is None else records.number[rows]
        silos.append(SiloData(x, y, users.astype(np.int64), starts, numbers))
    return silos
