"""The GPU's kernel as a library of the processor."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.training.trainers.compiled.library import native_library
from fedpriv.training.trainers.device.network import DeviceNetwork
from fedpriv.training.trainers.device.trainer import SOURCE, Task, kernel_texts

FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-pthread")


@dataclass(frozen=True)
class ProcessorProgram:
    """The kernel with one block, whose threads are the processor's.

    loaded: the library.
    """

    loaded: ctypes.CDLL

    def blocks(self, threads: int, shared_bytes: int) -> int:
        return 1

    def launch(self, task: Task, blocks: int, threads: int, shared_bytes: int) -> None:
        memory = np.full(shared_bytes // 4 + 4, np.nan, dtype=np.float32)
        aligned = memory.ctypes.data + -memory.ctypes.data % 16
        self.loaded.train(ctypes.byref(task), ctypes.c_void_p(aligned))


def processor_program(
    network: DeviceNetwork, folder: Path, *, lanes: int = 1, teams: int = 1
) -> ProcessorProgram:
    """The kernel's library, built in `folder`. More lanes and teams than one are threads, which
    wait for one another as a GPU's do. Raises CannotCompileError."""
    texts = kernel_texts(network, teams)
    flags = (*FLAGS, f"-DLANES_HERE={lanes}")
    return ProcessorProgram(
        ctypes.CDLL(str(native_library(folder, "kernel", texts, SOURCE, flags)))
    )
