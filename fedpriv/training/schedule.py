"""Which users train together, and which records each batch step takes.

Users are sorted by their number of records, most first, and cut into blocks. So in batch step j of
an epoch the users that still have records are a prefix of the block. Their batches are padded to
the length of the first user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.util.streams import branch


@dataclass(frozen=True)
class Batch:
    """The records of one step of the first a users, with b rows each.

    x: (a, b, ...).
    y: (a, b, ...).
    weight: (a, b): 1 / (the user's batch size), or 0 for padding.
    """

    x: Tensor
    y: Tensor
    weight: Tensor


@dataclass(frozen=True)
class BatchStep:
    """A step of every user's own training.

    batch: its records.
    epoch: counted from 0.
    place: of the batch in the epoch.
    """

    batch: Batch
    epoch: int
    place: int


@dataclass(frozen=True)
class Limits:
    """What bounds a block.

    step_cost: the fixed cost of one step, in units of one row's time.
    user_bytes: memory of a user.
    row_bytes: memory of a row, which may be padding.
    budget: bytes of a block; a block of one user may exceed it.
    """

    step_cost: float
    user_bytes: int
    row_bytes: int
    budget: int

    def users(self, width: int) -> int:
        """How many users with batches of `width` rows fit."""
        return max(1, self.budget // (self.user_bytes + width * self.row_bytes))


def cut(counts: np.ndarray, size: int, limits: Limits) -> list[tuple[int, int]]:
    """Blocks (first, past the last) of users with `counts` (n,) records, descending, and batches of
    `size`.

    Dynamic programming over the distinct counts minimises the total cost of steps (each costs
    `step_cost`) and rows with padding. Results are cached, since a silo's users are mostly the same
    in every round.
    """
    return list(_cut(counts.tobytes(), size, limits))


@lru_cache(maxsize=1024)
def _cut(counted: bytes, size: int, limits: Limits) -> tuple[tuple[int, int], ...]:
    counts = np.frombuffer(counted, dtype=np.int64)
    distinct, first = np.unique(-counts, return_index=True)
    n = -distinct
    users = np.diff([*first, len(counts)])
    steps = -(-n // size)
    best = np.full(len(n) + 1, np.inf)
    choice = np.zeros(len(n) + 1, dtype=np.int64)
    best[0] = 0
    for i in range(len(n)):
        # One block from i on: users with as many batches as the first pad their last one to its
        # length.
        rows = np.cumsum(users[i:] * np.where(steps[i:] == steps[i], n[i], steps[i:] * size))
        blocks_needed = -(-np.cumsum(users[i:]) // limits.users(min(size, int(n[i]))))
        total = best[i] + rows + blocks_needed * steps[i] * limits.step_cost
        better = total < best[i + 1 :]
        best[i + 1 :][better], choice[i + 1 :][better] = total[better], i
    blocks: list[tuple[int, int]] = []
    end = len(n)
    while end:
        i = int(choice[end])
        start = int(first[i])
        stop = int(first[i] + users[i:end].sum())
        pieces = -(-(stop - start) // limits.users(min(size, int(n[i]))))
        edges = np.linspace(start, stop, pieces + 1).astype(int)
        blocks += reversed(list(zip(edges[:-1].tolist(), edges[1:].tolist())))
        end = i
    return tuple(blocks[::-1])


def batches(
    data: SiloData, positions: np.ndarray, size: int, *, epochs: int, keys: np.ndarray | None
) -> Iterator[BatchStep]:
    """The batch steps of the users at `positions` (k,), sorted by records, descending.

    size: rows of a batch.
    keys: (k,) uint64, one a user, from which the order of its records is drawn. In every epoch each
        record has a random number by its rank among the user's records, and they are taken in the
        order of these numbers. A user whose records fit in one batch keeps their order. If that
        holds for all users, no keys are needed and every step has the same Batch object.
    """
    counts = data.counts[positions]
    starts = data.starts[positions]
    if counts[0] <= size:
        rows = starts[:, None] + np.minimum(np.arange(counts[0]), counts[:, None] - 1)
        batch = _take(data, rows, _weights(data, counts, int(counts[0])))
        for epoch in range(epochs):
            yield BatchStep(batch, epoch, 0)
        return
    assert keys is not None
    local = np.arange(counts[0])
    rows = starts[:, None] + np.minimum(local, counts[:, None] - 1)
    offsets = range(0, int(counts[0]), size)
    active = [int((counts > offset).sum()) for offset in offsets]
    weights = [
        _weights(data, np.minimum(size, counts[:a] - offset), min(size, int(counts[0]) - offset))
        for a, offset in zip(active, offsets)
    ]
    mixed = active[1]  # users with several batches come first
    padding = local >= counts[:mixed, None]
    for epoch in range(epochs):
        numbers = branch(branch(keys[:mixed], epoch)[:, None], local)
        numbers[padding] = np.iinfo(np.uint64).max
        order = numbers.argsort(axis=1, kind="stable")
        shuffled = np.concatenate([np.take_along_axis(rows[:mixed], order, axis=1), rows[mixed:]])
        for place, (a, offset, weight) in enumerate(zip(active, offsets, weights)):
            yield BatchStep(_take(data, shuffled[:a, offset : offset + size], weight), epoch, place)


def _weights(data: SiloData, counts: np.ndarray, width: int) -> Tensor:
    weight = (np.arange(width) < counts[:, None]) / counts[:, None]
    return torch.from_numpy(weight.astype(np.float32)).to(data.x.device)


def _take(data: SiloData, rows: np.ndarray, weight: Tensor) -> Batch:
    index = torch.from_numpy(np.ascontiguousarray(rows)).to(data.x.device).view(-1)
    x, y = (torch.unflatten(t.index_select(0, index), 0, rows.shape) for t in (data.x, data.y))
    return Batch(x, y, weight)
