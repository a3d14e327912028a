"""Which users train side by side, when each has its turn, and which records each batch step takes.

A stack of users has seats. A user takes a seat, does all its batch steps there, and leaves the seat
to the next user.

A user's bits must not depend on who else trains. Kernels round differently for stacks of another
shape, and for a number at another distance from the end of a vector. So the seats of a stack and
the rows of its batches follow from a user's own batches, and in a seat that nobody needs trains a
copy that nobody reads. What remains is the user's seat. It changes no bit as long as every kernel
fills whole vectors with the numbers of `STACK` users.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
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
class Seats:
    """Some seats of a stack, and who begins or ends there.

    seats: (m,).
    users: (m,), counted in the block.
    """

    seats: np.ndarray
    users: np.ndarray


NOBODY = Seats(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True)
class BatchStep:
    """A step of the training of every user in a stack of k seats.

    batch: its records.
    epochs: (k,): epoch of each seat's user, from 0.
    places: (k,): place of the batch in this epoch.
    begin: whose training begins with this step.
    end: whose training ends with this step, without copies.
    """

    batch: Batch
    epochs: np.ndarray
    places: np.ndarray
    begin: Seats
    end: Seats


STACK = 32
"""A stack has one seat or a multiple of so many. The numbers of so many users fill whole vectors of
any processor, however few each user has."""
ROWS = 256
"""Rows that the batches of a stack have together where its users have few each. On one core the
creditcard MLP spends 0.2 ms a step on calls, and 1.7 microseconds a user and 0.9 a row on numbers.
With more seats, more would be empty."""
ALONE_FROM = 2**21
"""A user trains alone if its batch has so many multiply-adds. Then calls take a third of its time
at most, and a stack would not fit the inner caches of a processor."""


@dataclass(frozen=True)
class Limits:
    """What bounds a stack.

    user_bytes: memory of a user.
    row_bytes: memory of a row, which may be padding.
    budget: bytes of a stack; a stack of one user may exceed it.
    row_products: multiply-adds of a row; 0 where users with large batches are stacked, too.
    """

    user_bytes: int
    row_bytes: int
    budget: int
    row_products: int = 0

    def stack(self, rows: int) -> int:
        """How many seats a stack has for users with batches of `rows` rows: a multiple of `STACK`,
        or one."""
        bytes_of_user = self.user_bytes + rows * self.row_bytes
        fitting = self.budget // (STACK * bytes_of_user)
        if not fitting or rows * self.row_products >= ALONE_FROM:
            return 1
        return STACK * min(fitting, max(1, ROWS // (STACK * rows)))


def padded(rows: np.ndarray) -> np.ndarray:
    """How many rows batches of `rows` (n,) records take in a stack: the next power of two, so that
    few stacks serve users of all sizes."""
    exact: np.ndarray = 2 ** np.frexp(np.maximum(rows, 1) - 0.5)[1].astype(np.int64)
    return exact


@dataclass(frozen=True)
class Shapes:
    """The stacks in which users train, which follow from their own records.

    seats: (n,).
    last: rows of each user's last batch, with padding, (n,).
    alike: (n,), equal for users who can share a stack.
    """

    seats: np.ndarray
    last: np.ndarray
    alike: np.ndarray


def shapes(counts: np.ndarray, size: int, limits: Limits, *, pad: bool, cap: int | None) -> Shapes:
    """The stacks of users with `counts` (n,) records.

    size: of batches.
    pad: whether last batches may be padded.
    cap: size of batches in the settings, if they have one. Without it, `size` depends on other
        users.
    """
    several = counts > size
    last = (counts - 1) % size + 1
    wide = last
    if pad:
        wide = np.where(several, size, np.minimum(padded(last), cap or np.iinfo(np.int64).max))
    largest = np.where(several, size, wide)
    seats_of = {rows: limits.stack(rows) for rows in np.unique(largest).tolist()}
    seats = np.array([seats_of[rows] for rows in largest.tolist()], np.int64)
    wide = np.where(seats > 1, wide, last)
    # Users whose last batches are not padded only share a stack if all their batches are equal.
    batches = np.zeros_like(counts) if pad else -(-counts // size)
    alike = np.stack([np.where(seats > 1, wide, 0), np.where(seats > 1, batches, 0)])
    _, which = np.unique(alike, axis=1, return_inverse=True)
    return Shapes(seats, wide, which.ravel())


def blocks_of(shapes: Shapes, nbytes: np.ndarray, budget: int) -> list[tuple[int, int]]:
    """Users (first, past the last) who share a stack, a block of whole stacks at a time.

    nbytes: memory of each user's result and records, (n,).
    budget: bytes of a block; one stack may exceed it.
    """
    edges = np.flatnonzero(shapes.alike[1:] != shapes.alike[:-1]) + 1
    found = []
    before = np.concatenate([[0], np.cumsum(nbytes)])
    for first, stop in pairwise([0, *edges.tolist(), len(shapes.alike)]):
        seats = int(shapes.seats[first])
        while first < stop:
            fitting = int(np.searchsorted(before, before[first] + budget, side="right")) - 1 - first
            end = min(stop, first + max(1, fitting // seats) * seats)
            found.append((first, end))
            first = end
    return found


@dataclass(frozen=True)
class Turn:
    """A user's training in a seat.

    begin: step of the stack with which it begins.
    seat: where.
    user: whose.
    read: whether somebody reads the result; else it is a copy.
    """

    begin: int
    seat: int
    user: int
    read: bool = True


def turns(steps: Sequence[int], seats: int) -> list[Turn]:
    """When and where each user trains. Those with most steps come first, each to the seat that is
    free first. Then a seat trains copies of its last user until all users are done. A seat that had
    no user trains copies of the first one.

    steps: of each user, (n,).
    """
    free = [(0, seat) for seat in range(seats)]
    latest = [0] * seats
    found = []
    for user in np.argsort(-np.asarray(steps), kind="stable").tolist():
        begin, seat = free[0]
        found.append(Turn(begin, seat, user))
        latest[seat] = user
        heapreplace(free, (begin + steps[user], seat))
    end = max(begin for begin, _ in free)
    for begin, seat in free:
        user = latest[seat]
        found += [Turn(at, seat, user, False) for at in range(begin, end, steps[user])]
    return found


class StackedBatches:
    """The batch steps of users who share a stack.

    data: the silo's records.
    positions: of the users in `data`, (n,).
    size: rows of a batch.
    last: rows of their last batches, with padding, (n,).
    seats: of the stack, k.
    epochs: of each user's training.
    keys: (n,) uint64, one a user, from which the order of its records is drawn. In every epoch each
        record has a random number by its rank among the user's records, and they are taken in the
        order of these numbers. A user whose records fit in one batch keeps their order. If that
        holds for all users, no keys are needed, and a seat's Batch is made once.
    """

    def __init__(
        self,
        data: SiloData,
        positions: np.ndarray,
        size: int,
        *,
        last: np.ndarray,
        seats: int,
        epochs: int,
        keys: np.ndarray | None,
    ) -> None:
        self.data = data
        self.size = size
        self.counts = data.counts[positions]
        self.starts = data.starts[positions]
        self.batches = -(-self.counts // size)
        self.last = last
        self.keys = keys
        self.epochs = epochs
        self.steps = epochs * self.batches
        self.seats = seats
        width = int(((self.batches - 1) * size + last).max())
        # Positions in `data` of each seat's records, in the order of the seat's current epoch.
        self._rows = np.zeros((seats, width), np.int64)

    def __iter__(self) -> Iterator[BatchStep]:
        return self._in_one_seat() if self.seats == 1 else self._in_seats()

    def _in_one_seat(self) -> Iterator[BatchStep]:
        """One user after the other."""
        seat = np.zeros(1, np.int64)
        for user, number in enumerate(self.batches.tolist()):
            who = np.array([user])
            batch = self._only_batch(user) if number == 1 else None
            for step in range(self.epochs * number):
                own = np.array([step // number])
                place = np.array([step % number])
                if number > 1:
                    self._open_epochs(who, own, seat[: int(place[0] == 0)])
                    batch = self._batch(who, place)
                assert batch is not None
                begin = Seats(seat, who) if not step else NOBODY
                end = Seats(seat, who) if step + 1 == self.epochs * number else NOBODY
                yield BatchStep(batch, own, place, begin, end)

    def _only_batch(self, user: int) -> Batch:
        """All records of a user, in their order."""
        count = int(self.counts[user])
        rows = slice(int(self.starts[user]), int(self.starts[user]) + count)
        x, y = (own[rows].clone().unsqueeze(0) for own in (self.data.x, self.data.y))
        return Batch(x, y, torch.full((1, count), 1 / count, device=x.device))

    def _in_seats(self) -> Iterator[BatchStep]:
        begin, end, length = self._events()
        users = np.zeros(self.seats, np.int64)
        began = np.zeros(self.seats, np.int64)
        batch = None
        several = bool(self.batches.max() > 1)
        for now in range(length):
            new = begin.get(now)
            if new is not None:
                users[new.seats] = new.users
                began[new.seats] = now
            epochs, places = np.divmod(now - began, self.batches[users])
            if new is not None or several:
                self._open_epochs(users, epochs, np.flatnonzero(places == 0))
                batch = self._batch(users, places)
            assert batch is not None
            yield BatchStep(batch, epochs, places, new or NOBODY, end.get(now, NOBODY))

    def _events(self) -> tuple[dict[int, Seats], dict[int, Seats], int]:
        """Who begins and who ends with which step, and the number of steps."""
        each = turns(self.steps.tolist(), self.seats)
        begin: dict[int, list[Turn]] = {}
        end: dict[int, list[Turn]] = {}
        for turn in each:
            begin.setdefault(turn.begin, []).append(turn)
            if turn.read:
                end.setdefault(turn.begin + int(self.steps[turn.user]) - 1, []).append(turn)
        length = max(end) + 1
        return _seats(begin), _seats(end), length

    def _open_epochs(self, users: np.ndarray, epochs: np.ndarray, seats: np.ndarray) -> None:
        """Draw the order of the records of the users in `seats`, whose epochs begin."""
        if not len(seats):
            return
        own = users[seats]
        counts = self.counts[own][:, None]
        # Batches with fewer records than rows are padded with the last record drawn.
        width = int(((self.batches[own] - 1) * self.size + self.last[own]).max())
        local = np.arange(width)
        rows = self.starts[own][:, None] + np.minimum(local, counts - 1)
        several = np.flatnonzero(self.batches[own] > 1)
        if len(several):
            assert self.keys is not None
            keys = branch(self.keys[own[several]], epochs[seats[several]])
            numbers = branch(keys[:, None], local)
            numbers[local >= counts[several]] = np.iinfo(np.uint64).max
            order = numbers.argsort(axis=1, kind="stable")
            rows[several] = np.take_along_axis(rows[several], order, axis=1)
        self._rows[seats, :width] = rows

    def _batch(self, users: np.ndarray, places: np.ndarray) -> Batch:
        final = places == self.batches[users] - 1
        width = int(self.last[users[0]]) if final[0] else self.size
        columns = places[:, None] * self.size + np.arange(width)
        rows = np.take_along_axis(self._rows, columns, axis=1)
        records = np.where(final, self.counts[users] - places * self.size, self.size)[:, None]
        weight = ((np.arange(width) < records) / records).astype(np.float32)
        device = self.data.x.device
        index = torch.from_numpy(rows).to(device).view(-1)
        x, y = (
            torch.unflatten(t.index_select(0, index), 0, rows.shape)
            for t in (self.data.x, self.data.y)
        )
        return Batch(x, y, torch.from_numpy(weight).to(device))


def _seats(turns_at: dict[int, list[Turn]]) -> dict[int, Seats]:
    return {
        step: Seats(np.array([t.seat for t in each]), np.array([t.user for t in each]))
        for step, each in turns_at.items()
    }
