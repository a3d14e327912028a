"""Sums of clipped gradients of records in C++.

Each record's gradient is computed alone, by the same instructions whatever the batch: none of its
bits depends on other records.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.trainers.compiled.network import CompiledNetwork
from fedpriv.training.trainers.compiled.problem import (
    Program,
    RecordsSpec,
    check_shape,
    in_threads,
    program,
)

PIECE = 128
"""Records that are summed before their sum is added to the others'. Pieces do not depend on the
number of threads, so that neither does the sum."""


@dataclass(frozen=True)
class ClippedSum:
    """Sums of clipped gradients."""

    program: Program

    def __call__(
        self, theta: Tensor, x: Tensor, y: Tensor, keys: np.ndarray, names: np.ndarray, clip: float
    ) -> tuple[Tensor, Tensor]:
        """The sum (d,) float64 at `theta` (d,) float32 over the records x (n, ...), y (n, ...), and
        the gradients' norms (n,) float64.

        A gradient that is not finite counts as zero. Large sums use torch's number of threads.

        keys: (n,) uint64, of the records' dropout.
        names: uint64, of what each of the network's `masks` draws.
        clip: bound on a gradient's L2 norm.

        Raises as `Program.arrays` does.
        """
        network, loaded = self.program.network, self.program.loaded
        check_shape("theta", theta, (network.size,))
        n = len(x)
        start = self.program.packed(theta)
        norms = torch.empty(n, dtype=torch.float64)
        x, y = self.program.records(x, y)
        keys, names = np.ascontiguousarray(keys), np.ascontiguousarray(names)
        problem = self.program.problem(start, rows=1)
        workspace = loaded.workspace_of_sum(ctypes.byref(problem))

        def part(first: int, last: int) -> Tensor:
            total = torch.empty(network.size, dtype=torch.float64)
            records = RecordsSpec(
                x=x[first:].data_ptr(),
                y=y[first:].data_ptr(),
                keys=keys[first:].ctypes.data if len(keys) else None,
                names=names.ctypes.data,
                n=last - first,
                piece=PIECE,
                clip=clip,
                norms=norms[first:].data_ptr(),
                total=total.data_ptr(),
            )
            memory = np.empty(workspace, dtype=np.uint8)
            loaded.sum_clipped(ctypes.byref(problem), ctypes.byref(records), memory.ctypes.data)
            return total

        threads = min(torch.get_num_threads(), -(-n // PIECE))
        if threads < 2:
            return part(0, n), norms
        sum_of_all = torch.zeros(network.size, dtype=torch.float64)
        ends = [(first, min(first + PIECE, n)) for first in range(0, n, PIECE)]
        for total in in_threads(lambda end: part(*end), ends, threads):
            sum_of_all += total
        return sum_of_all, norms


def clipped_sum(
    model: nn.Module, network: CompiledNetwork | Unmapped, task: Task
) -> ClippedSum | Unmapped:
    """The sums of `model`, whose layers are `network`, or why they are not compiled."""
    if isinstance(network, Unmapped):
        return network
    first = next(model.parameters())  # a sum is asked for at parameters of one type
    if first.dtype != torch.float32 or first.device.type != "cpu":
        return Unmapped("it needs parameters of float32 on a processor")
    if network.halves:
        return Unmapped("it draws random numbers")
    found = program(network, task)
    return found if isinstance(found, Unmapped) else ClippedSum(found)
