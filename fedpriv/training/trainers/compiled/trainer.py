"""One user after another in C++, each from its first step to its last, with its parameters in the
processor's cache."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from fedpriv.data.silo import SiloData
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.random_words import epochs_a_word
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem, Result
from fedpriv.training.trainers.compiled.network import compiled_network, word_names
from fedpriv.training.trainers.compiled.problem import (
    NamesSpec,
    ProblemSpec,
    Program,
    UsersSpec,
    in_threads,
    program,
)

ROWS_AT_ONCE = 64
"""Larger batches are computed in pieces, so that activations stay in a processor's cache."""
ACTIVATIONS_AT_ONCE = 2**18
"""Numbers in a piece. Where a record has many activations, pieces are smaller, down to
`FEW_ROWS`."""
FEW_ROWS = 8
BLOCK_BYTES = 2**21, 2**23
"""Least and most bytes of a block's deltas: they stay in an outer cache, and the next block reuses
them. After long training the work done once a block finds the caches cold, so larger blocks pay."""
BYTES_A_PRODUCT = 2**17
"""Bytes of a block's deltas for each multiply-add that one of their numbers takes; measured."""


class Owner(NamedTuple):
    """A silo that one user trains in.

    data: the silo's records.
    position: of the user in `data.users`; None: the user owns all records.
    size: records of a batch.
    most: records of the user.
    """

    data: SiloData
    position: int | None
    size: int
    most: int


class Compiled(BlockTrainer):
    """Trains blocks of any users, on `execution.workers` threads. Each thread takes the next user
    until none is left. Users with most records come first, so all threads end at about the same
    time."""

    name = "compiled"

    def __init__(self, problem: LocalProblem, program: Program) -> None:
        self.problem = problem
        self.program = program
        self.start = program.packed(problem.start)
        correction = problem.correction
        self.correction = None if correction is None else program.packed(correction)
        at_once = max(FEW_ROWS, ACTIVATIONS_AT_ONCE // problem.cost.activations)
        self.rows = min(ROWS_AT_ONCE, at_once)
        self.known: dict[tuple[int, int], ProblemSpec] = {}

    @property
    def joins(self) -> bool:
        return self.problem.execution.workers > 1

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        k = len(counts)
        cost = self.problem.cost
        products = self.problem.recipe.epochs * int(counts.sum()) * cost.products
        work = products / (k * cost.parameters)
        wanted = min(max(int(BYTES_A_PRODUCT * work), BLOCK_BYTES[0]), BLOCK_BYTES[1])
        pieces = -(-k * 4 * cost.parameters // wanted)
        if min(k, pieces) == 1:
            return [(0, k)]
        return list(pairwise(np.linspace(0, k, min(k, pieces) + 1).astype(int).tolist()))

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        k = len(users.positions)
        deltas = np.empty((k, self.program.network.size), dtype=np.float32)
        orders = users.dropout if users.orders is None else users.orders  # unused where None
        positions = np.ascontiguousarray(users.positions, dtype=np.int64)
        orders, dropout = (np.ascontiguousarray(keys) for keys in (orders, users.dropout))
        taken = np.zeros(1, dtype=np.int64)
        work = UsersSpec(
            *self._records(users.data, pooled=False),
            *(own.ctypes.data for own in (positions, orders, dropout)),
            k,
            deltas.ctypes.data,
            taken.ctypes.data,
        )
        problem = self._problem(users.size, int(users.counts[0]))
        threads = min(self.problem.execution.workers, k)
        in_threads(
            lambda _: self._train(problem, ctypes.addressof(work), 1), range(threads), threads
        )
        return torch.from_numpy(deltas), {}

    def run_owners(
        self, owners: Sequence[Owner], orders: np.ndarray, dropout: np.ndarray, deltas: np.ndarray
    ) -> None:
        """Train one user in each of several silos, with the bits of `run`, and write the deltas.

        orders: (k,) uint64, as in `TrainingUsers`; unused for a user whose records fit one batch.
        dropout: (k,) uint64.
        deltas: (k, d) float32.
        """
        k = len(owners)
        positions = np.array([owner.position or 0 for owner in owners], dtype=np.int64)
        taken = np.zeros(k, dtype=np.int64)
        users = np.empty((k, ctypes.sizeof(UsersSpec) // 8), dtype=np.int64)
        users[:, :3] = [self._records(own.data, own.position is None) for own in owners]
        for column, array in ((3, positions), (4, orders), (5, dropout), (7, deltas), (8, taken)):
            users[:, column] = array.ctypes.data + array.strides[0] * np.arange(k)
        users[:, 6] = 1
        alike = defaultdict(list)
        for number, owner in enumerate(owners):
            alike[owner.size, owner.most].append(number)
        for key, numbers in alike.items():
            own = users[numbers]
            self._train(self._problem(*key), own.ctypes.data, len(own))

    def _train(self, problem: ProblemSpec, users: int, n: int) -> None:
        """Train the users of `n` `UsersSpec` side by side at this address."""
        train, workspace = self.program.loaded.train, self.program.loaded.workspace
        memory = np.empty(workspace(ctypes.byref(problem)), dtype=np.uint8)
        train(ctypes.byref(problem), users, n, memory.ctypes.data)

    def _records(self, data: SiloData, pooled: bool) -> tuple[int, ...]:
        """Where the silo's features, labels and starts lie; checked, and kept with the records,
        since they never change."""
        network = self.program.network
        known: dict[Any, Any] = vars(data).setdefault("_compiled", {})
        key = pooled, self.program.loss, network.shape, network.outputs, network.words
        if key not in known:
            starts = np.array([0, len(data.x)]) if pooled else data.starts
            starts = np.ascontiguousarray(starts, dtype=np.int64)
            x, y = self.program.records(data.x, data.y)
            known[key] = (x.data_ptr(), y.data_ptr(), starts.ctypes.data), (x, y, starts)
        addresses: tuple[int, ...] = known[key][0]
        return addresses

    def _problem(self, size: int, most: int) -> ProblemSpec:
        """What users have in common whose batches have `size` records, and who have at most
        `most`."""
        if (size, most) not in self.known:
            self.known[size, most] = self._new_problem(size, most)
        return self.known[size, most]

    def _new_problem(self, size: int, most: int) -> ProblemSpec:
        recipe = self.problem.recipe
        places, halves = -(-most // size), self.program.network.halves
        names = word_names(recipe.epochs, places, halves)
        coupled = self.program.loss.couples_records
        problem = self.program.problem(
            self.start,
            correction=None if self.correction is None else self.correction.data_ptr(),
            epochs=recipe.epochs,
            batch=size,
            rows=most if coupled else min(self.rows, most),
            most=most,
            lr=recipe.lr,
            proximal=recipe.proximal,
            names=NamesSpec(
                *(own.ctypes.data for own in names),
                places,
                len(halves),
                -(-len(halves) // 32),
                epochs_a_word(len(halves)),
            ),
        )
        problem.alive = names
        return problem


def compiled(problem: LocalProblem) -> Compiled | Unmapped:
    """The trainer of the problem, or why it does not support the problem or the machine."""
    if not problem.recipe.optimizer.plain:
        return Unmapped("the optimiser is not plain SGD")
    if problem.start.device.type != "cpu":
        return Unmapped("it needs a processor")
    found = program(compiled_network(problem.model, problem.shape, problem.dtype), problem.task)
    if isinstance(found, Unmapped):
        return found
    if found.network.masks:
        return Unmapped("it drops by the keys of records")
    return Compiled(problem, found)
