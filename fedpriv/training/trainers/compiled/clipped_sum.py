"""Sums of clipped gradients of records in C++.

Each record's gradient is computed alone, by the same instructions whatever the batch: none of its
bits depends on other records.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.models.tasks import Task
from fedpriv.training.layers.compiled_specs import MASK, fields
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.losses import CompiledLoss, compiled_loss
from fedpriv.training.trainers.compiled.network import CompiledNetwork
from fedpriv.training.trainers.compiled.trainer import CACHE_LINE, ProblemSpec

PIECE = 128
"""Records that are summed before their sum is added to the others'. Pieces do not depend on the
number of threads, so that neither does the sum."""
MOST_PARAMETERS = 2**24
"""Up to which a float32 counts every one of them, as C++ does."""


class RecordsSpec(ctypes.Structure):
    """`Records` of records.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y masks")
        + fields(ctypes.c_int64, "n")
        + fields(ctypes.c_double, "clip")
        + fields(ctypes.c_void_p, "norms total")
    )


class ClippedSum:
    """Sums of clipped gradients of a network on records of `shape`."""

    def __init__(
        self, network: CompiledNetwork, shape: tuple[int, ...], loss: CompiledLoss
    ) -> None:
        loaded = library()
        assert loaded is not None
        self.loaded = loaded
        self.network = network
        self.shape = shape
        self.loss = loss

    def __call__(
        self, theta: Tensor, x: Tensor, y: Tensor, masks: Mapping[str, Tensor], clip: float
    ) -> tuple[Tensor, Tensor]:
        """The sum (d,) float64 at `theta` (d,) float32 over the records x (n, ...), y (n, ...), and
        the gradients' norms (n,) float64.

        A gradient that is not finite counts as zero. Large sums use torch's number of threads.

        masks: the factors of `MaskedDropout` layers, (n, ...) by the names of buffers.
        clip: bound on a gradient's L2 norm.

        Raises IndexError as `CompiledNetwork.arrays` does, and ValueError for arrays of other
        shapes: C++ would read beside them.
        """
        self._check(theta, x, masks)
        start = np.ascontiguousarray(theta.numpy())
        rows = [*self.network.arrays(x, y, self.loss)]
        rows += [_floats(masks[f"{name}.mask"]) for name in self.network.masks]
        problem = ProblemSpec(
            layers=ctypes.addressof(self.network.layers),
            n_layers=len(self.network.layers),
            features=math.prod(self.shape),
            size=len(start),
            outputs=self.network.outputs,
            loss=self.loss.schema,
            epochs=1,
            batch=1,
            rows=1,
            most=1,
            start=start.ctypes.data,
        )
        workspace = self.loaded.workspace_of_sum(ctypes.byref(problem)) + CACHE_LINE
        norms = np.empty(len(x))

        def piece(first: int) -> np.ndarray:
            total = np.empty(len(start))
            n = min(PIECE, len(x) - first)
            here = [own.ctypes.data + own.strides[0] * first for own in (*rows, norms)]
            factors = (ctypes.c_void_p * len(rows[2:]))(*here[2:-1])
            records = RecordsSpec(
                x=here[0],
                y=here[1],
                masks=ctypes.addressof(factors),
                n=n,
                clip=clip,
                norms=here[-1],
                total=total.ctypes.data,
            )
            memory = np.empty(workspace, dtype=np.uint8)
            aligned = memory.ctypes.data + -memory.ctypes.data % CACHE_LINE
            self.loaded.sum_clipped(ctypes.byref(problem), ctypes.byref(records), aligned)
            return total

        sum_of_all = np.zeros(len(start))
        firsts = range(0, len(x), PIECE)
        threads = min(torch.get_num_threads(), len(firsts))
        if threads < 2:
            for first in firsts:
                sum_of_all += piece(first)
        else:
            with ThreadPoolExecutor(threads) as pool:
                for total in pool.map(piece, firsts):
                    sum_of_all += total
        return torch.from_numpy(sum_of_all), torch.from_numpy(norms)

    def _check(self, theta: Tensor, x: Tensor, masks: Mapping[str, Tensor]) -> None:
        n = len(x)
        for name, own, shape in (
            ("theta", theta, (self.network.size,)),
            ("x", x, (n, *self.shape)),
        ):
            if tuple(own.shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(own.shape)}, expected {shape}")
        for layer in self.network.layers:
            if layer.schema == MASK:
                name, coins = self.network.masks[layer.number], layer.steps * layer.flag
                if masks[f"{name}.mask"].numel() != n * coins:
                    raise ValueError(f"{name}: expected {coins} coins of each of {n} records")


def _floats(mask: Tensor) -> np.ndarray:
    """(n, numbers) float32 in one piece."""
    return np.ascontiguousarray(mask.flatten(1).numpy(), dtype=np.float32)


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
    if network.draws:
        return Unmapped("it draws random numbers")
    loss = compiled_loss(task, network.outputs)
    if isinstance(loss, Unmapped):
        return loss
    if library() is None:
        return Unmapped("it needs a C++ compiler")
    if network.size > MOST_PARAMETERS:
        return Unmapped(f"it has {network.size} parameters, more than {MOST_PARAMETERS}")
    return ClippedSum(network, shape, loss)
