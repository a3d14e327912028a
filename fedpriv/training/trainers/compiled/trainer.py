"""One user after another in C++, each from its first step to its last, with its parameters in the
processor's cache."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from fedpriv.data.silo import SiloData
from fedpriv.training.layers.buffers import epochs_a_word
from fedpriv.training.layers.compiled_specs import DROPOUT, fields
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem, Result, TrainingUsers
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.losses import CompiledLoss, compiled_loss
from fedpriv.training.trainers.compiled.network import (
    CompiledNetwork,
    compiled_network,
    word_names,
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
CACHE_LINE = 64


class NamesSpec(ctypes.Structure):
    """`Names` of dropout.h."""

    _fields_ = fields(ctypes.c_void_p, "shared own") + fields(
        ctypes.c_int64, "places layers words epochs_a_word"
    )


class ProblemSpec(ctypes.Structure):
    """`Problem` of layers.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "layers")
        + fields(ctypes.c_int64, "n_layers features size outputs loss epochs batch rows most")
        + fields(ctypes.c_double, "lr proximal")
        + fields(ctypes.c_void_p, "start correction")
        + fields(NamesSpec, "names")
    )


class UsersSpec(ctypes.Structure):
    """`Users` of users.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y starts users orders dropout")
        + fields(ctypes.c_int64, "k")
        + fields(ctypes.c_void_p, "deltas next")
    )


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


@dataclass(frozen=True, eq=False)
class Prepared:
    """What the blocks of a silo's users share.

    data: the silo's records.
    problem: what all users have in common.
    everyone: the silo's users, without the fields that differ between blocks.
    workspace: bytes that a thread needs.
    alive: the arrays that the addresses point to.
    """

    data: SiloData
    problem: ProblemSpec
    everyone: UsersSpec
    workspace: int
    alive: tuple[np.ndarray, ...]

    def serves(self, users: TrainingUsers) -> bool:
        same = users.data is self.data and users.size == self.problem.batch
        return same and int(users.counts[0]) <= self.problem.most


@dataclass(frozen=True, eq=False)
class Addresses:
    """Where a silo's records lie.

    arrays: features, labels and starts.
    addresses: of them.
    """

    arrays: tuple[np.ndarray, ...]
    addresses: tuple[int, ...]

    @staticmethod
    def of(*arrays: np.ndarray) -> Addresses:
        return Addresses(arrays, tuple(array.ctypes.data for array in arrays))


class Compiled(BlockTrainer):
    """Trains blocks of any users, on `execution.workers` threads. Each thread takes the next user
    until none is left. Users with most records come first, so all threads end at about the same
    time."""

    name = "compiled"

    def __init__(self, problem: LocalProblem, network: CompiledNetwork, loss: CompiledLoss) -> None:
        loaded = library()
        assert loaded is not None
        self.problem = problem
        self.loaded = loaded
        self.network = network
        self.layers = network.layers
        self.loss = loss
        self.start = np.ascontiguousarray(problem.start.numpy())
        correction = problem.correction
        self.correction = None if correction is None else np.ascontiguousarray(correction.numpy())
        wanted = max(FEW_ROWS, ACTIVATIONS_AT_ONCE // problem.cost.activations)
        self.rows = None if loss.couples_records else min(ROWS_AT_ONCE, wanted)
        self.prepared: Prepared | None = None

    def joins(self, rows: int) -> bool:
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
        deltas = np.empty((len(users.positions), len(self.start)), dtype=np.float32)
        if self.prepared is None or not self.prepared.serves(users):
            self.prepared = self._prepare(users)
        self._train(users, self.prepared, deltas)
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
        records = [self._addresses(owner.data, owner.position is None) for owner in owners]
        positions = np.array([owner.position or 0 for owner in owners], dtype=np.int64)
        taken = np.zeros(k, dtype=np.int64)
        users = np.empty((k, ctypes.sizeof(UsersSpec) // 8), dtype=np.int64)
        users[:, :3] = [known.addresses for known in records]
        for column, array in ((3, positions), (4, orders), (5, dropout), (7, deltas), (8, taken)):
            users[:, column] = array.ctypes.data + array.strides[0] * np.arange(k)
        users[:, 6] = 1
        specs: dict[tuple[int, int], tuple[int, int]] = {}
        alive = []
        start = users.ctypes.data
        width = users.strides[0]
        for number, owner in enumerate(owners):
            key = owner.size, owner.most
            if key not in specs:
                problem, workspace, arrays = self._problem_spec(*key)
                memory = np.empty(workspace, dtype=np.uint8)
                aligned = memory.ctypes.data + -memory.ctypes.data % CACHE_LINE
                alive.append((problem, arrays, memory))
                specs[key] = ctypes.addressof(problem), aligned
            spec, room = specs[key]
            self.loaded.train(spec, start + width * number, room)

    def _addresses(self, data: SiloData, pooled: bool) -> Addresses:
        """Of the silo's records, checked; kept with the records, since they never change."""
        known: dict[Any, Addresses] = vars(data).setdefault("_compiled", {})
        key = pooled, self.loss, self.network.outputs, self.network.words
        if key not in known:
            x, y = self.network.arrays(data.x, data.y, self.loss)
            starts = np.array([0, len(x)]) if pooled else data.starts
            known[key] = Addresses.of(x, y, np.ascontiguousarray(starts, dtype=np.int64))
        return known[key]

    def _prepare(self, users: TrainingUsers) -> Prepared:
        """Raises IndexError as `CompiledNetwork.arrays` does."""
        x, y = self.network.arrays(users.data.x, users.data.y, self.loss)
        starts = np.ascontiguousarray(users.data.starts, dtype=np.int64)
        problem, workspace, names = self._problem_spec(users.size, int(users.counts[0]))
        everyone = UsersSpec(x=x.ctypes.data, y=y.ctypes.data, starts=starts.ctypes.data)
        return Prepared(users.data, problem, everyone, workspace, (x, y, starts, *names))

    def _problem_spec(
        self, size: int, most: int
    ) -> tuple[ProblemSpec, int, tuple[np.ndarray, ...]]:
        """What users have in common whose batches have `size` records, and who have at most `most`;
        bytes that a thread needs; and the arrays that the addresses point to."""
        recipe = self.problem.recipe
        dropping = [layer for layer in self.layers if layer.schema == DROPOUT]
        places = -(-most // size)
        halves = [bool(layer.flag) for layer in dropping]
        shared, own = word_names(recipe.epochs, places, len(dropping), any(halves), not all(halves))
        words = -(-len(dropping) // 32)
        epochs = epochs_a_word(len(dropping))
        problem = ProblemSpec(
            layers=ctypes.addressof(self.layers),
            n_layers=len(self.layers),
            features=math.prod(self.problem.shape),
            size=len(self.start),
            outputs=self.network.outputs,
            loss=self.loss.schema,
            epochs=recipe.epochs,
            batch=size,
            rows=min(self.rows or most, most),
            most=most,
            lr=recipe.lr,
            proximal=recipe.proximal,
            start=self.start.ctypes.data,
            correction=None if self.correction is None else self.correction.ctypes.data,
            names=NamesSpec(
                shared.ctypes.data, own.ctypes.data, places, len(dropping), words, epochs
            ),
        )
        workspace = self.loaded.workspace(ctypes.byref(problem)) + CACHE_LINE
        return problem, workspace, (shared, own)

    def _train(self, users: TrainingUsers, prepared: Prepared, deltas: np.ndarray) -> None:
        """Train `users` and write their deltas to (k, d). Releases Python's global lock."""
        orders = users.dropout if users.orders is None else users.orders  # unused where None
        positions = np.ascontiguousarray(users.positions, dtype=np.int64)
        orders, dropout = (np.ascontiguousarray(keys) for keys in (orders, users.dropout))
        taken = np.zeros(1, dtype=np.int64)
        work = UsersSpec.from_buffer_copy(prepared.everyone)
        work.users, work.orders, work.dropout = (
            a.ctypes.data for a in (positions, orders, dropout)
        )
        work.k = len(deltas)
        work.deltas = deltas.ctypes.data
        work.next = taken.ctypes.data

        def train(_: int) -> None:
            memory = np.empty(prepared.workspace, dtype=np.uint8)
            aligned = memory.ctypes.data + -memory.ctypes.data % CACHE_LINE
            self.loaded.train(ctypes.byref(prepared.problem), ctypes.byref(work), aligned)

        others = range(1, min(self.problem.execution.workers, len(deltas)))
        helping = self.helpers.map(train, others) if others else ()
        train(0)
        list(helping)  # waits for them

    @cached_property
    def helpers(self) -> ThreadPoolExecutor:
        """Threads besides the calling one; they end with the trainer."""
        return ThreadPoolExecutor(self.problem.execution.workers - 1)


def compiled(problem: LocalProblem) -> Compiled | Unmapped:
    """The trainer of the problem, or why it does not support the problem or the machine."""
    if not problem.recipe.optimizer.plain:
        return Unmapped("the optimiser is not plain SGD")
    if problem.start.device.type != "cpu":
        return Unmapped("it needs a processor")
    network = compiled_network(problem.model, problem.shape, problem.dtype)
    if isinstance(network, Unmapped):
        return network
    loss = compiled_loss(problem.task, network.outputs)
    if isinstance(loss, Unmapped):
        return loss
    if network.masks:
        return Unmapped("its masks of dropout are an input")
    if library() is None:
        return Unmapped("it needs a C++ compiler")
    return Compiled(problem, network, loss)
