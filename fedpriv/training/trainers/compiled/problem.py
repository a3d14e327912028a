"""What C++ is told, and what it is told for a network and a loss."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpriv.models.tasks import Task
from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.layers.compiled_specs import fields
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
        + fields(ctypes.c_void_p, "start correction real places factors")
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
        fields(ctypes.c_void_p, "x y keys names")
        + fields(ctypes.c_int64, "n piece")
        + fields(ctypes.c_double, "clip")
        + fields(ctypes.c_void_p, "norms total")
    )


class Program:
    """A network and a loss in C++.

    loaded: the functions of training.cpp.
    places: where C++ has each parameter, (d,), among `size` numbers.
    """

    def __init__(self, loaded: ctypes.CDLL, network: CompiledNetwork, loss: CompiledLoss) -> None:
        self.loaded = loaded
        self.network = network
        self.loss = loss
        self.places, self.size, self.real = _places(loaded, network)
        self.factors = torch.tensor(loss.factors) if loss.factors else None

    def packed(self, vector: Tensor) -> Tensor:
        """A vector (d,) float32 in the order of C++, (size,)."""
        flat, found = vector.contiguous(), torch.zeros(self.size)
        self.loaded.pack(self.places.data_ptr(), len(flat), flat.data_ptr(), found.data_ptr())
        return found

    def problem(self, start: Tensor, **others: Any) -> ProblemSpec:
        """The problem at packed parameters, with other fields."""
        return _spec(
            self.network,
            loss=self.loss.schema,
            start=start.data_ptr(),
            real=self.real.data_ptr(),
            places=self.places.data_ptr(),
            factors=None if self.factors is None else self.factors.data_ptr(),
            **others,
        )

    def records(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, ...) float32 and labels (n, ...) for C++.

        Raises ValueError for other shapes than those of the network and the loss, and IndexError
        for a class or a word that the network does not have: C++ would write or read beside its
        arrays.
        """
        words = self.network.words
        check_shape("x", x, (len(x), *self.network.shape))
        check_shape("y", y, (len(x), *self.loss.label))
        if words and len(x):
            least, most = map(int, x.aminmax())
            if not 0 <= least <= most < words:
                raise IndexError(f"words from {least} to {most} for a network of {words}")
        labels = y.contiguous().to(self.loss.dtype)
        if self.loss.has_classes and len(x):
            lowest, highest = map(int, labels.aminmax())
            check_classes(lowest, highest, self.network.outputs)
        return x.contiguous().to(torch.float32), labels


def _spec(network: CompiledNetwork, **others: Any) -> ProblemSpec:
    return ProblemSpec(
        layers=ctypes.addressof(network.layers),
        n_layers=len(network.layers),
        features=math.prod(network.shape),
        size=network.size,
        outputs=network.outputs,
        **others,
    )


@lru_cache(maxsize=64)
def _places(loaded: ctypes.CDLL, network: CompiledNetwork) -> tuple[Tensor, int, Tensor]:
    """Where C++ has each of the network's parameters, (d,) int32, among how many numbers, and which
    of these are parameters, float32."""
    places = torch.empty(network.size, dtype=torch.int32)
    problem = _spec(network, rows=1, most=1)
    memory = np.empty(loaded.workspace(ctypes.byref(problem)), dtype=np.uint8)
    size = loaded.find_places(ctypes.byref(problem), places.data_ptr(), memory.ctypes.data)
    return places, size, torch.zeros(size).index_fill(0, places.long(), 1.0)


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
