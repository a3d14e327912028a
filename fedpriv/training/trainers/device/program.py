"""The kernel of a network on a GPU."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from importlib.resources import files

import torch

from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.trainers.device.network import DeviceNetwork
from fedpriv.training.trainers.device.task import Task
from fedpriv.training.trainers.gpu.nvrtc import FAILURES, Function, shared_memory

SOURCE = "kernel.cpp"
LANES = 32


def source_texts(network: DeviceNetwork) -> dict[str, str]:
    """The files of the kernel's source, by name."""
    folder = files(__package__) / "source"
    texts = {
        entry.name: entry.read_text()
        for entry in folder.iterdir()
        if entry.name.endswith((".h", ".cpp"))
    }
    return texts | {"sizes.h": network.sizes, "layers.h": network.layers}


class Program(ABC):
    """A compiled kernel."""

    @abstractmethod
    def blocks(self, teams: int, shared_bytes: int) -> int:
        """How many blocks run at the same time."""

    @abstractmethod
    def launch(self, task: Task, blocks: int, teams: int, shared_bytes: int) -> None:
        """Begin to train the task's users on the current stream."""


class CudaProgram(Program):
    """The kernel on one GPU."""

    def __init__(self, network: DeviceNetwork, device: torch.device) -> None:
        """Raises `FAILURES`."""
        self.function = Function(source_texts(network), SOURCE, "train", device)
        self.function.allow_shared_memory(shared_memory(device))
        self.known: dict[tuple[int, int], int] = {}

    def blocks(self, teams: int, shared_bytes: int) -> int:
        key = teams, shared_bytes
        if key not in self.known:
            each = max(1, self.function.blocks_at_once(teams * LANES, shared_bytes))
            self.known[key] = each * self.function.processors
        return self.known[key]

    def launch(self, task: Task, blocks: int, teams: int, shared_bytes: int) -> None:
        self.function.launch(task, blocks, teams * LANES, shared_bytes)


@cache
def cuda_program(network: DeviceNetwork, index: int) -> Program | Unmapped:
    """The program of the network on the GPU of this number, or why it cannot be built."""
    try:
        return CudaProgram(network, torch.device("cuda", index))
    except FAILURES as error:
        return Unmapped(f"its kernel cannot be built ({error})")
