"""All users in one launch of a kernel: a block of its threads trains one user, from the first step
to the last, with its parameters in the block's shared memory.

No user's bits depend on others: a block computes the same numbers in the same order whichever block
it is and whoever else trains. Random words and orders of records are those of the processor, bit
for bit. The host waits for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.silo import SiloData
from fedpriv.training.layers.buffers import epochs_a_word
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.random_words import as_tensor
from fedpriv.training.trainers.base import (
    BlockTrainer,
    LocalProblem,
    Result,
    TrainingUsers,
    memory_budget,
)
from fedpriv.training.trainers.compiled.losses import (
    CROSS_ENTROPY,
    LOGISTIC,
    check_classes,
    compiled_loss,
    known_loss,
)
from fedpriv.training.trainers.compiled.network import compiled_network, word_names
from fedpriv.training.trainers.device.network import DeviceNetwork, device_network
from fedpriv.training.trainers.device.program import Program, cuda_program
from fedpriv.training.trainers.device.task import Task
from fedpriv.training.trainers.gpu.nvrtc import FAILURES, index_of, shared_memory

ROW_CLASSES = 4, 16
"""Users of few records need little shared memory, so that more of them train at once."""
LEAST_TEAMS = 4


class Device(BlockTrainer):
    """Trains users on the GPU where their records are."""

    name = "device"

    def __init__(self, problem: LocalProblem, network: DeviceNetwork, program: Program) -> None:
        self.problem = problem
        self.network = network
        self.program = program
        loss = known_loss(problem.task)
        assert loss is not None
        self.loss = loss

    def joins(self, rows: int) -> bool:
        return True

    def blocks(self, counts: np.ndarray, size: int) -> list[tuple[int, int]]:
        k = len(counts)
        bytes_each = 4 * self.problem.cost.parameters
        most = max(1, memory_budget(self.problem.start.device) // bytes_each)
        return [(first, min(first + most, k)) for first in range(0, k, most)]

    def run(self, users: TrainingUsers, memory: Mapping[str, np.ndarray] | None) -> Result:
        return self.begin(users)(), {}

    def begin(self, users: TrainingUsers) -> Callable[[], Tensor]:
        features = math.prod(self.problem.shape)
        x, y = self._records(users.data)
        starts = users.data.starts[users.positions]
        orders = users.dropout if users.orders is None else users.orders  # unused where None
        counts = users.counts
        order = np.argsort(-counts, kind="stable")
        table = np.stack(
            [
                x.data_ptr() + starts * (4 * features),
                y.data_ptr() + starts * y.element_size(),
                orders.view(np.int64),
                users.dropout.view(np.int64),
                counts,
                np.arange(len(counts)),
            ]
        )
        deltas, streams = self._launch(table[:, order], users.size, (x, y))

        def wait() -> Tensor:
            streams.join()
            return deltas

        return wait

    def _records(self, data: SiloData) -> tuple[Tensor, Tensor]:
        """Raises IndexError for a class that the network does not have: the kernel would read
        beside its arrays."""
        y = data.y.contiguous()
        if self.loss.has_classes:
            check_classes(*data.label_range, self.network.outputs)
        return data.x.contiguous().to(torch.float32), y.to(self.loss.dtype)

    def _launch(
        self, table: np.ndarray, size: int, records: tuple[Tensor, ...]
    ) -> tuple[Tensor, _Streams]:
        """Begin to train users with the columns of `table`: as `Task` of block.h, by counts
        descending. Returns their changes (k, d), and what knows when they are there."""
        device = self.problem.start.device
        network = self.network
        counts = table[4]
        k, d = len(counts), len(self.problem.start)
        places = -(-int(counts[0]) // size)
        on_device = torch.from_numpy(np.ascontiguousarray(table)).to(device)
        deltas = torch.empty((k, d), dtype=torch.float32, device=device)
        rows = network.rows(size)
        edges = _edges(np.minimum(counts, rows)) if network.inside else [0, k]
        next_users = torch.zeros(len(edges), dtype=torch.int32, device=device)
        common, read = self._common(size, places)
        streams = _Streams(device, len(edges) - 1)
        streams.use((*records, *read, on_device, deltas, next_users))
        columns = "x", "y", "order_keys", "dropout_keys", "counts", "places_of"
        for i, (first, stop) in enumerate(pairwise(edges)):
            longest = int(counts[first])
            here = min(rows, longest)
            teams = self._teams(here)
            shared = network.shared_bytes(teams, here)
            blocks = min(stop - first, self.program.blocks(teams, shared))
            scratch = self._scratch(blocks, here, longest, size)
            streams.use([own for own in scratch.values() if own is not None])
            task = Task(
                **common,
                **{name: on_device[row, first:].data_ptr() for row, name in enumerate(columns)},
                **{name: _address(own) for name, own in scratch.items()},
                deltas=deltas.data_ptr(),
                next=next_users[i:].data_ptr(),
                arena=0 if network.inside else here * network.row,
                longest=longest,
                k=stop - first,
                rows=here,
            )
            with streams.at(i):
                self.program.launch(task, blocks, teams, shared)
        return deltas, streams

    def _common(self, size: int, places: int) -> tuple[dict[str, Any], list[Tensor]]:
        """What all launches are told, and the tensors that they read."""
        problem, network = self.problem, self.network
        recipe = problem.recipe
        drawing = network.drawing
        flags = network.shared_words, network.own_words
        words = _names(recipe.epochs, places, drawing, *flags, problem.start.device)
        common: dict[str, Any] = {
            "start": _address(problem.start),
            "correction": _address(problem.correction),
            "shared": words[0].data_ptr(),
            "own": words[1].data_ptr(),
            "size": len(problem.start),
            "epochs": recipe.epochs,
            "batch": size,
            "places": places,
            "drawing": drawing,
            "epochs_a_word": epochs_a_word(drawing),
            "lr": recipe.lr,
            "proximal": recipe.proximal,
        }
        correction = [] if problem.correction is None else [problem.correction]
        return common, [problem.start, *words, *correction]

    def _teams(self, rows: int) -> int:
        network = self.network
        return network.teams if network.scratch else min(max(rows, LEAST_TEAMS), network.teams)

    def _scratch(self, blocks: int, rows: int, longest: int, size: int) -> dict[str, Tensor | None]:
        """Memory of every block outside of shared memory."""
        network = self.network
        device = self.problem.start.device
        d = len(self.problem.start)
        shuffled = longest > size
        in_pieces = min(longest, size) > rows
        sizes = {
            "arenas": (0 if network.inside else rows * network.row, torch.float32),
            "gradients": (d if in_pieces else 0, torch.float32),
            "numbers": (longest if shuffled else 0, torch.int64),
            "orders": (longest if shuffled else 0, torch.int32),
        }
        return {
            name: torch.empty(blocks * n, dtype=dtype, device=device) if n else None
            for name, (n, dtype) in sizes.items()
        }


class _Streams:
    """Streams on which launches run side by side, beside the current one; none on a processor."""

    def __init__(self, device: torch.device, launches: int) -> None:
        self.device = device
        self.streams = []
        if device.type == "cuda":
            now = torch.cuda.current_stream(device)
            self.streams = [_stream(device, next(_turns) % MOST_STREAMS) for _ in range(launches)]
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


MOST_STREAMS = 16
_turns = count()


@lru_cache(maxsize=64)
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@lru_cache(maxsize=64)
def _names(
    epochs: int, places: int, layers: int, shared: bool, own: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """`word_names` on the device."""
    first, second = word_names(epochs, places, layers, shared, own)
    return as_tensor(first, device), as_tensor(second, device)


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
    except FAILURES as error:
        return Unmapped(f"its kernel cannot be built ({error})")
    if isinstance(network, Unmapped):
        return network
    program = cuda_program(network, index_of(device))
    return program if isinstance(program, Unmapped) else Device(problem, network, program)


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
    if loss.schema not in (CROSS_ENTROPY, LOGISTIC):
        return Unmapped(f"the loss of {type(problem.task).__name__} is not in the kernel")
    logistic = loss.schema == LOGISTIC
    features = math.prod(problem.shape)
    return device_network(network, features, logistic=logistic, shared_memory=shared)
