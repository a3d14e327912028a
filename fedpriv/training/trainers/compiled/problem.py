"""What C++ is told, and what it is told for a network and a loss."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from fedpriv.models.tasks import Task
from fedpriv.training.layers.compiled_specs import fields
from fedpriv.training.layers.mapping import Unmapped
from fedpriv.training.trainers.compiled.library import library
from fedpriv.training.trainers.compiled.losses import CompiledLoss, check_classes, compiled_loss
from fedpriv.training.trainers.compiled.network import CompiledNetwork

Item = TypeVar("Item")
Found = TypeVar("Found")


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
    alive: Sequence[np.ndarray] = ()
    """Arrays that only the addresses point to."""


class UsersSpec(ctypes.Structure):
    """`Users` of users.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y starts users orders dropout")
        + fields(ctypes.c_int64, "k")
        + fields(ctypes.c_void_p, "deltas next")
    )


class RecordsSpec(ctypes.Structure):
    """`Records` of records.h."""

    _fields_ = (
        fields(ctypes.c_void_p, "x y masks")
        + fields(ctypes.c_int64, "n")
        + fields(ctypes.c_double, "clip")
        + fields(ctypes.c_void_p, "norms total")
    )


@dataclass(frozen=True)
class Program:
    """A network and a loss in C++.

    loaded: the functions of training.cpp.
    """

    loaded: ctypes.CDLL
    network: CompiledNetwork
    loss: CompiledLoss

    def problem(self, start: np.ndarray, **others: Any) -> ProblemSpec:
        """The problem at the parameters `start` (d,) float32, with other fields."""
        network = self.network
        return ProblemSpec(
            layers=ctypes.addressof(network.layers),
            n_layers=len(network.layers),
            features=math.prod(network.shape),
            size=network.size,
            outputs=network.outputs,
            loss=self.loss.schema,
            start=start.ctypes.data,
            **others,
        )

    def arrays(self, x: Tensor, y: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Features (n, ...) float32 and labels (n, ...) for C++.

        Raises ValueError for other shapes than those of the network and the loss, and IndexError
        for a class or a word that the network does not have: C++ would write or read beside its
        arrays.
        """
        check_shape("x", x, (len(x), *self.network.shape))
        check_shape("y", y, (len(x), *self.loss.label))
        features = x.contiguous().numpy()
        labels = y.contiguous().to(self.loss.dtype).numpy()
        words, outputs = self.network.words, self.network.outputs
        if words and len(x) and not 0 <= int(features.min()) <= int(features.max()) < words:
            found = f"words from {features.min()} to {features.max()}"
            raise IndexError(f"{found} for a network of {words}")
        if self.loss.has_classes and len(labels):
            check_classes(labels.min(), labels.max(), outputs)
        return features.astype(np.float32, copy=False), labels


def program(network: CompiledNetwork | Unmapped, task: Task) -> Program | Unmapped:
    """The network and the task's loss in C++, or why they are not compiled."""
    if isinstance(network, Unmapped):
        return network
    loss = compiled_loss(task, network.outputs)
    if isinstance(loss, Unmapped):
        return loss
    loaded = library()
    if loaded is None:
        return Unmapped("it needs a C++ compiler")
    return Program(loaded, network, loss)


def check_shape(name: str, own: Tensor, shape: tuple[int, ...]) -> None:
    """Raises ValueError for a tensor of another shape."""
    if tuple(own.shape) != shape:
        raise ValueError(f"{name} has the shape {tuple(own.shape)}, expected {shape}")


def in_threads(work: Callable[[Item], Found], items: Iterable[Item], threads: int) -> list[Found]:
    """What `work` makes of each item, in their order. C++ releases Python's global lock."""
    if threads < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
