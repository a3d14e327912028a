"""The kernel's source as a library of the processor: for tests, and without any GPU."""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpriv.training.trainers.compiled.build_folder import BuildFolder, run_compiler
from fedpriv.training.trainers.compiled.library import compiler
from fedpriv.training.trainers.device.network import ROWS_TOGETHER, DeviceNetwork, sizes_text
from fedpriv.training.trainers.device.program import SOURCE, Program, source_texts
from fedpriv.training.trainers.device.task import Task

FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-pthread")


@dataclass(frozen=True)
class ProcessorProgram(Program):
    """The kernel with one block, whose threads are the processor's.

    loaded: the library.
    """

    loaded: ctypes.CDLL

    def blocks(self, teams: int, shared_bytes: int) -> int:
        return 1

    def launch(self, task: Task, blocks: int, teams: int, shared_bytes: int) -> None:
        memory = np.full(shared_bytes // 4 + 4, np.nan, dtype=np.float32)
        aligned = memory.ctypes.data + -memory.ctypes.data % 16
        self.loaded.train(ctypes.byref(task), ctypes.c_void_p(aligned))


def processor_program(
    network: DeviceNetwork, folder: Path, *, lanes: int = 1, teams: int = 1
) -> ProcessorProgram:
    """The kernel's library, built in `folder`. More lanes and teams than one are threads, which
    wait for one another as a GPU's do. Raises CannotCompileError."""
    texts = source_texts(network)
    together = 1 if network.scratch else ROWS_TOGETHER
    texts["sizes.h"] = sizes_text(teams, together)
    content = repr((sorted(texts.items()), lanes, FLAGS)).encode()
    name = "kernel-" + hashlib.blake2b(content, digest_size=16).hexdigest()

    def make(scratch: Path) -> Path:
        for file, text in texts.items():
            (scratch / file).write_text(text)
        fresh = scratch / "library.so"
        lanes_here = f"-DLANES_HERE={lanes}"
        run_compiler([*compiler(), *FLAGS, lanes_here, str(scratch / SOURCE), "-o", str(fresh)])
        return fresh

    return ProcessorProgram(ctypes.CDLL(str(BuildFolder(folder).library(name, make))))
