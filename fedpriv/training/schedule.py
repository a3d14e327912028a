"""Which users train together, and which records each batch step takes.

A user's bits must not depend on who else trains. Kernels round differently for stacks of another
shape, and for a number at another distance from the end of a vector. So a stack has only users with
equal batches, its number of users is fixed by their batches, and users that are missing are
replaced by copies that nobody reads. What remains is a user's place in its stack. It changes no bit
as long as every kernel fills whole vectors with the numbers of `STACK` users.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.util.streams import branch


@dataclass(frozen=True)
class Batch:
    """The records of one step of a users, with b rows each.

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


STACK = 32
"""Users of a stack: their numbers fill vectors of any processor, however few each has."""


@dataclass(frozen=True)
class Limits:
    """What bounds a stack.

    user_bytes: memory of a user.
    row_bytes: memory of a row, which may be padding.
    budget: bytes of a stack; a stack of one user may exceed it.
    """

    user_bytes: int
    row_bytes: int
    budget: int

    def stack(self, rows: int) -> int:
        """How many users with batches of `rows` rows a stack has: `STACK` or one."""
        return STACK if STACK * (self.user_bytes + rows * self.row_bytes) <= self.budget else 1


def padded(rows: np.ndarray) -> np.ndarray:
    """How many rows batches of `rows` (n,) records take in a stack: up to a fifth more, so that
    users with about as many records share one."""
    exact = np.frexp(np.maximum(rows - 1, 0))[1] - 3  # steps double with every power of two
    step = 2 ** np.maximum(exact, 0)
    found: np.ndarray = -(-rows // step) * step
    return found


def last_rows(counts: np.ndarray, size: int) -> np.ndarray:
    """How many records the last batches of users with `counts` (n,) records have."""
    found: np.ndarray = (counts - 1) % size + 1
    return found


def equal_batches(
    counts: np.ndarray, size: int, pad: bool, stack: Callable[[int], int]
) -> list[tuple[int, int]]:
    """Stacks (first, past the last) of users with equal batches.

    counts: numbers of their records (n,), descending.
    size: of batches.
    pad: whether last batches are `padded`.
    stack: how many users with batches of so many rows a stack has, at most.
    """
    last = last_rows(counts, size)
    shapes = np.stack([-(-counts // size), padded(last) if pad else last])
    edges = np.flatnonzero(np.any(shapes[:, 1:] != shapes[:, :-1], axis=0)) + 1
    found = []
    for first, stop in pairwise([0, *edges.tolist(), len(counts)]):
        whole, rows = shapes[:, first].tolist()
        users = stack(rows if whole == 1 else max(size, rows))
        found += [(i, min(i + users, stop)) for i in range(first, stop, users)]
    return found


def batches(
    data: SiloData,
    positions: np.ndarray,
    size: int,
    *,
    epochs: int,
    keys: np.ndarray | None,
    pad: bool = False,
) -> Iterator[BatchStep]:
    """The batch steps of the users at `positions` (k,), who have equal batches.

    size: rows of a batch.
    keys: (k,) uint64, one a user, from which the order of its records is drawn. In every epoch each
        record has a random number by its rank among the user's records, and they are taken in the
        order of these numbers. A user whose records fit in one batch keeps their order. If that
        holds for all users, no keys are needed and every step has the same Batch object.
    pad: whether last batches are `padded`.
    """
    counts = data.counts[positions]
    starts = data.starts[positions]
    last = last_rows(counts, size)
    width = int((padded(last) if pad else last)[0])
    offsets = range(0, int(counts.max()), size)
    # Where the numbers of records differ, the last batch is padded with the last record drawn.
    local = np.arange(offsets[-1] + width)
    rows = starts[:, None] + np.minimum(local, counts[:, None] - 1)
    rest = _weights(data, last, width)
    if len(offsets) == 1:
        batch = _take(data, rows, rest)
        for epoch in range(epochs):
            yield BatchStep(batch, epoch, 0)
        return
    assert keys is not None
    full = _weights(data, np.full(len(counts), size), size)
    padding = local >= counts[:, None]
    for epoch in range(epochs):
        numbers = branch(branch(keys, epoch)[:, None], local)
        numbers[padding] = np.iinfo(np.uint64).max
        order = numbers.argsort(axis=1, kind="stable")
        shuffled = np.take_along_axis(rows, order, axis=1)
        for place, offset in enumerate(offsets):
            final = place == len(offsets) - 1
            own = shuffled[:, offset:] if final else shuffled[:, offset : offset + size]
            yield BatchStep(_take(data, own, rest if final else full), epoch, place)


def _weights(data: SiloData, counts: np.ndarray, width: int) -> Tensor:
    weight = (np.arange(width) < counts[:, None]) / counts[:, None]
    return torch.from_numpy(weight.astype(np.float32)).to(data.x.device)


def _take(data: SiloData, rows: np.ndarray, weight: Tensor) -> Batch:
    index = torch.from_numpy(np.ascontiguousarray(rows)).to(data.x.device).view(-1)
    x, y = (torch.unflatten(t.index_select(0, index), 0, rows.shape) for t in (data.x, data.y))
    return Batch(x, y, weight)
