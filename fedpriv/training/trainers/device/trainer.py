"""All users in one launch of a kernel: a block of its threads trains one user, from the first step
to the last, with its parameters in the block's shared memory.

No user's bits depend on others: a block computes the same numbers in the same order whichever block
it is and whoever else trains. Random words and orders of records are those of the processor, bit
for bit. The host waits for nothing.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.training.batches import TrainingUsers
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.random_words import as_tensor, epochs_a_word
from fedpriv.training.trainers.base import BlockTrainer, LocalProblem, Result, memory_budget
from fedpriv.training.trainers.compiled.build_folder import source_texts
from fedpriv.training.trainers.compiled.losses import (
    check_classes,
    compiled_loss,
)
from fedpriv.training.trainers.compiled.network import compiled_network, word_names
from fedpriv.training.trainers.device.network import LANES, DeviceNetwork, device_network
from fedpriv.training.trainers.device.nvrtc import FAILURES, Function, index_of, shared_memory

SOURCE = "kernel.cpp"


class Task(ctypes.Structure):
    """What the kernel is told: `Task` of block.h. Addresses are those of the training device."""

    _fields_ = (
        fields(
            ctypes.c_void_p,
            "start correction shared own x y order_keys dropout_keys counts deltas "
            "arenas gradients numbers orders next",
        )
        + fields(ctypes.c_int64, "arena longest")
        + fields(ctypes.c_int32, "k size epochs batch rows places drawing epochs_a_word")
        + fields(ctypes.c_float, "lr proximal")
    )


def kernel_texts(network: DeviceNetwork, teams: int) -> dict[str, str]:
    """The files of the kernel's source, by name. teams: of a block, at most."""
    own = {"sizes.h": network.sizes(teams), "layers.h": network.layers}
    return source_texts(__package__) | own


@cache
def cuda_program(network: DeviceNetwork, index: int) -> Function:
    """The program of the network on the GPU of this number. Raises `FAILURES`."""
    device = torch.device("cuda", index)
    function = Function(kernel_texts(network, network.teams), SOURCE, "train", device)
    function.allow_shared_memory(shared_memory(device))
    return function


ROW_CLASSES = 4, 16
"""Users of few records need little shared memory, so that more of them train at once."""
LEAST_TEAMS = 4


class Device(BlockTrainer):
    """Trains users on the GPU where their records are."""

    name = "device"

    def __init__(self, problem: LocalProblem, network: DeviceNetwork, program: Function) -> None:
        self.problem = problem
        self.network = network
        self.program = program

    joins = True

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        k = len(counts)
        bytes_each = 4 * self.problem.cost.parameters
        most = max(1, memory_budget(self.problem.start.device) // bytes_each)
        return [(first, min(first + most, k)) for first in range(0, k, most)]

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        return self.begin(users)(), {}

    def begin(self, users: TrainingUsers) -> Callable[[], Tensor]:
        network, recipe, device = self.network, self.problem.recipe, self.problem.start.device
        counts, size = users.counts, users.size
        k, d = len(counts), len(self.problem.start)
        x, y = self._records(users.data)
        starts = users.data.starts[users.positions]
        columns = {
            "x": x.data_ptr() + starts * (x.stride(0) * x.element_size()),
            "y": y.data_ptr() + starts * (y.stride(0) * y.element_size()),
            "order_keys": users.dropout if users.orders is None else users.orders,  # or unused
            "dropout_keys": users.dropout,
            "counts": counts,
        }
        table = torch.from_numpy(np.stack([own.view(np.int64) for own in columns.values()]))
        on_device = table.to(device)
        deltas = torch.empty((k, d), dtype=torch.float32, device=device)
        rows = network.rows(size)
        edges = _edges(np.minimum(counts, rows)) if network.inside else [0, k]
        next_users = torch.zeros(len(edges), dtype=torch.int32, device=device)
        places = -(-int(counts[0]) // size)
        read = self._read(places)
        streams = _Streams(device, len(edges) - 1)
        streams.use((x, y, *read.values(), on_device, deltas, next_users))
        for i, (first, stop) in enumerate(pairwise(edges)):
            longest = int(counts[first])
            here = min(rows, longest)
            teams = network.teams if network.scratch else min(max(here, LEAST_TEAMS), network.teams)
            threads = teams * LANES
            shared = network.shared_bytes(teams, here)
            blocks = min(stop - first, self.program.blocks(threads, shared))
            scratch = self._scratch(blocks, here, longest, size)
            streams.use(scratch.values())
            task = Task(
                **{name: on_device[row, first:].data_ptr() for row, name in enumerate(columns)},
                **{name: own.data_ptr() for name, own in {**read, **scratch}.items()},
                deltas=deltas[first:].data_ptr(),
                next=next_users[i:].data_ptr(),
                arena=0 if network.inside else here * network.row,
                longest=longest,
                k=stop - first,
                size=d,
                epochs=recipe.epochs,
                batch=size,
                rows=here,
                places=places,
                drawing=len(network.halves),
                epochs_a_word=epochs_a_word(len(network.halves)),
                lr=recipe.lr,
                proximal=recipe.proximal,
            )
            with streams.at(i):
                self.program.launch(task, blocks, threads, shared)

        def wait() -> Tensor:
            streams.join()
            return deltas

        return wait

    def _records(self, data: SiloData) -> tuple[Tensor, Tensor]:
        """Raises IndexError for a class that the network does not have: the kernel would read
        beside its arrays."""
        loss = self.network.loss
        if loss.has_classes:
            check_classes(*data.label_range, self.network.outputs)
        return data.x.contiguous().to(torch.float32), data.y.contiguous().to(loss.dtype)

    def _read(self, places: int) -> dict[str, Tensor]:
        """The tensors that all launches read."""
        problem = self.problem
        halves, device = self.network.halves, problem.start.device
        shared, own = _names(problem.recipe.epochs, places, halves, device)
        read = {"start": problem.start, "shared": shared, "own": own}
        return read if problem.correction is None else {**read, "correction": problem.correction}

    def _scratch(self, blocks: int, rows: int, longest: int, size: int) -> dict[str, Tensor]:
        """Memory of every block outside of shared memory."""
        network, device = self.network, self.problem.start.device
        shuffled = longest if longest > size else 0
        in_pieces = min(longest, size) > rows
        sizes = {
            "arenas": (0 if network.inside else rows * network.row, torch.float32),
            "gradients": (len(self.problem.start) if in_pieces else 0, torch.float32),
            "numbers": (shuffled, torch.int64),
            "orders": (shuffled, torch.int32),
        }
        return {
            name: torch.empty(blocks * n, dtype=dtype, device=device)
            for name, (n, dtype) in sizes.items()
            if n
        }


class _Streams:
    """Streams on which launches run side by side, beside the current one; none on a processor."""

    def __init__(self, device: torch.device, launches: int) -> None:
        self.device = device
        self.streams = []
        if device.type == "cuda":
            now = torch.cuda.current_stream(device)
            self.streams = [_stream(device) for _ in range(launches)]
            for stream in self.streams:
                stream.wait_stream(now)

    def use(self, tensors: Iterable[Tensor]) -> None:
        """Their memory is not given to others before the streams have come so far."""
        for tensor in tensors:
            for stream in self.streams:
                tensor.record_stream(stream)

    def at(self, i: int) -> AbstractContextManager[object]:
        """Context of the stream of launch i."""
        return torch.cuda.stream(self.streams[i]) if self.streams else nullcontext()

    def join(self) -> None:
        """Let the current stream wait for the others."""
        for stream in self.streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)


def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # one of torch's pool


@lru_cache(maxsize=64)
def _names(
    epochs: int, places: int, halves: tuple[bool, ...], device: torch.device
) -> tuple[Tensor, ...]:
    """`word_names` on the device."""
    return tuple(as_tensor(names, device) for names in word_names(epochs, places, halves))


def _edges(rows: np.ndarray) -> list[int]:
    """Where classes of users with `rows` (k,), descending, begin, and the end."""
    found = [int(np.count_nonzero(rows > most)) for most in reversed(ROW_CLASSES)]
    return sorted({0, *found, len(rows)})


def device_trainer(problem: LocalProblem) -> Device | Unmapped:
    """The trainer of the problem, or why it does not support the problem or the machine."""
    device = problem.start.device
    if device.type != "cuda":
        return Unmapped("it needs a GPU")
    try:
        network = device_network_of(problem, shared_memory(device))
        if isinstance(network, Unmapped):
            return network
        return Device(problem, network, cuda_program(network, index_of(device)))
    except FAILURES as error:
        return Unmapped(f"its kernel cannot be built ({error})")


def device_network_of(problem: LocalProblem, shared: int) -> DeviceNetwork | Unmapped:
    """The kernel's part for the problem's network, or why there is none. shared: bytes of a block's
    shared memory."""
    if not problem.recipe.optimizer.plain:
        return Unmapped("the optimiser is not plain SGD")
    if problem.dtype != torch.float32:
        return Unmapped("its records are not of float32")
    network = compiled_network(problem.model, problem.shape, problem.dtype)
    if isinstance(network, Unmapped):
        return network
    loss = compiled_loss(problem.task, network.outputs)
    if isinstance(loss, Unmapped):
        return loss
    if loss.couples_records:
        return Unmapped(f"the loss of {type(problem.task).__name__} is not in the kernel")
    if loss.factors:
        return Unmapped("factors of classes are not in the kernel")
    return device_network(network, math.prod(problem.shape), loss, shared)
