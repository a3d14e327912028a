"""Users who train together, and which records each of their steps takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.util.streams import branch


@dataclass(frozen=True)
class TrainingUsers:
    """Users who train, by number of records, descending.

    data: the silo's records.
    positions: (k,) indices into data.users.
    size: of batches.
    orders: (k,) uint64, each user's key of the orders of its batches; None where every user's
        records fit in one.
    dropout: (k,) uint64, each user's key of dropout.
    """

    data: SiloData
    positions: np.ndarray
    size: int
    orders: np.ndarray | None
    dropout: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Number of their records, (k,) int64."""
        counts: np.ndarray = self.data.counts[self.positions]
        return counts

    @property
    def ids(self) -> np.ndarray:
        """Their global ids, (k,) int64."""
        ids: np.ndarray = self.data.users[self.positions]
        return ids

    def part(self, which: slice | np.ndarray) -> TrainingUsers:
        """Some of the users."""
        orders = None if self.orders is None else self.orders[which]
        return replace(
            self, positions=self.positions[which], orders=orders, dropout=self.dropout[which]
        )


@dataclass(frozen=True)
class Batch:
    """The records of one step of k users, with b rows each.

    x: (k, b, ...).
    y: (k, b, ...).
    weight: (k, b): 1 / (the user's batch size), or 0 for padding.
    epoch: from 0.
    place: of the batch in the epoch, from 0.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    epoch: int
    place: int


def batches(users: TrainingUsers, epochs: int) -> Iterator[Batch]:
    """The batches of users by number of records, descending; those who are done come no more.

    In every epoch each record has a random number by its rank among the user's records, and they
    are taken in the order of these numbers. A user whose records fit in one batch keeps their
    order. Users with fewer records repeat their last one, with weight 0.
    """
    counts, size = users.counts, users.size
    device = users.data.x.device
    numbers = -(-counts // size)
    single = numbers.max() == 1
    rows = np.zeros((len(counts), int(counts.max())), np.int64)
    for step in range(epochs * int(numbers.max())):
        active = int(np.count_nonzero(step < epochs * numbers))
        epoch, place = np.divmod(step, numbers[:active])
        if step == 0 or not single:
            beginning = np.flatnonzero(place == 0)
            if len(beginning):
                own = users.part(beginning)
                rows[beginning, : own.counts.max()] = _rows(own, epoch[beginning])
            left = (counts[:active] - place * size)[:, None]
            records = np.minimum(left, size)
            columns = np.arange(records.max())
            weights = ((columns < records) / records).astype(np.float32)
            taken = place[:, None] * size + np.minimum(columns, records - 1)
            index = torch.from_numpy(np.take_along_axis(rows[:active], taken, axis=1)).to(device)
            x, y = users.data.x[index], users.data.y[index]
            weight = torch.from_numpy(weights).to(device)
        yield Batch(x, y, weight, int(epoch[0]), int(place[0]))


def _rows(users: TrainingUsers, epochs: np.ndarray) -> np.ndarray:
    """(k, most): positions of the users' records in the order of their epochs (k,)."""
    counts = users.counts[:, None]
    local = np.arange(counts.max())
    rows: np.ndarray = users.data.starts[users.positions][:, None] + np.minimum(local, counts - 1)
    if len(local) > users.size:
        assert users.orders is not None
        numbers = branch(branch(users.orders, epochs)[:, None], local)
        numbers[local >= counts] = np.iinfo(np.uint64).max
        ordered = np.take_along_axis(rows, numbers.argsort(axis=1, kind="stable"), axis=1)
        rows = np.where(counts > users.size, ordered, rows)
    return rows
