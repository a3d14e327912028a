"""Sums of clipped gradients of records in C++.

Each record's gradient is computed alone, by the same instructions whatever the batch: none of its
bits depends on other records.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.layers.mapping import Unmapped
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
MOST_PARAMETERS = 2**24
"""Up to which a float32 counts every one of them, as C++ does."""


@dataclass(frozen=True)
class ClippedSum:
    """Sums of clipped gradients."""

    program: Program

    def __call__(
        self, theta: Tensor, x: Tensor, y: Tensor, masks: Mapping[str, Tensor], clip: float
    ) -> tuple[Tensor, Tensor]:
        """The sum (d,) float64 at `theta` (d,) float32 over the records x (n, ...), y (n, ...), and
        the gradients' norms (n,) float64.

        A gradient that is not finite counts as zero. Large sums use torch's number of threads.

        masks: the factors of `MaskedDropout` layers, (n, ...) by the names of buffers.
        clip: bound on a gradient's L2 norm.

        Raises as `Program.arrays` does.
        """
        network = self.program.network
        check_shape("theta", theta, (network.size,))
        n = len(x)
        start = theta.contiguous().numpy()
        norms = np.empty(n)
        factors = (masks[f"{name}.mask"].reshape(n, coins) for name, coins in network.masks)
        rows = [*self.program.arrays(x, y), norms]
        rows += [np.ascontiguousarray(own.numpy(), dtype=np.float32) for own in factors]
        problem = self.program.problem(start, rows=1)
        loaded = self.program.loaded
        workspace = loaded.workspace_of_sum(ctypes.byref(problem))

        def piece(first: int) -> np.ndarray:
            total = np.empty(len(start))
            x, y, norms, *masks = (own.ctypes.data + own.strides[0] * first for own in rows)
            addresses = (ctypes.c_void_p * len(masks))(*masks)
            records = RecordsSpec(
                x=x,
                y=y,
                masks=ctypes.addressof(addresses),
                n=min(PIECE, n - first),
                clip=clip,
                norms=norms,
                total=total.ctypes.data,
            )
            memory = np.empty(workspace, dtype=np.uint8)
            loaded.sum_clipped(ctypes.byref(problem), ctypes.byref(records), memory.ctypes.data)
            return total

        sum_of_all = np.zeros(len(start))
        firsts = range(0, n, PIECE)
        for total in in_threads(piece, firsts, min(torch.get_num_threads(), len(firsts))):
            sum_of_all += total
        return torch.from_numpy(sum_of_all), torch.from_numpy(norms)


def clipped_sum(
    model: nn.Module, network: CompiledNetwork | Unmapped, shape: tuple[int, ...], task: Task
) -> ClippedSum | Unmapped:
    """The sums of `model`, whose layers are `network`, on records of `shape`, or why they are not
    compiled."""
    if isinstance(network, Unmapped):
        return network
    first = next(model.parameters())  # a sum is asked for at parameters of one type
    if first.dtype != torch.float32 or first.device.type != "cpu":
        return Unmapped("it needs parameters of float32 on a processor")
    if network.halves:
        return Unmapped("it draws random numbers")
    if network.size > MOST_PARAMETERS:
        return Unmapped(f"it has {network.size} parameters, more than {MOST_PARAMETERS}")
    found = program(network, task)
    return found if isinstance(found, Unmapped) else ClippedSum(found)
