"""Which chains of layers are compiled, and what they are called there."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

from fedpriv.tasks import BinaryClassification, Classification, Task
from fedpriv.training.random_words import name_of, threshold
from fedpriv.training.trainers.buffers import epochs_a_word, own_words, shared_words
from fedpriv.training.trainers.compile_layers import Link

DENSE, RELU, GROUP_NORM, DROPOUT = range(4)
LOSSES: dict[type[Task], tuple[int, type[np.generic]]] = {
    Classification: (0, np.int64),
    BinaryClassification: (1, np.float32),
}
"""The losses whose gradients are compiled, and the type of their labels."""


class LayerSpec(ctypes.Structure):
    """As in training.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("kind", "inputs", "outputs", "flag", "number", "threshold")),
        ("real", ctypes.c_double),
    ]


def _dense(leaf: Any, width: int, _: int) -> LayerSpec:
    return LayerSpec(DENSE, leaf.in_features, leaf.out_features, leaf.bias is not None)


def _relu(_: Any, width: int, __: int) -> LayerSpec:
    return LayerSpec(RELU, width, width)


def _group_norm(leaf: Any, width: int, _: int) -> LayerSpec:
    return LayerSpec(GROUP_NORM, width, width, leaf.affine, real=leaf.eps)


def _dropout(leaf: Any, width: int, ordinal: int) -> LayerSpec:
    half, scale = leaf.p == 0.5, 1 / (1 - leaf.p) if leaf.p < 1 else 0.0
    return LayerSpec(DROPOUT, width, width, half, ordinal, -1 if half else threshold(leaf.p), scale)


ON_FEATURES: dict[type[nn.Module], Callable[[Any, int, int], LayerSpec]] = {
    nn.Linear: _dense,
    nn.ReLU: _relu,
    nn.GroupNorm: _group_norm,
    nn.Dropout: _dropout,
}
"""By the layer, the number of its features, and how many layers before it draw random numbers."""


def layer_specs(links: Sequence[Link], shape: tuple[int, ...]) -> list[LayerSpec] | None:
    """The layers of a chain on records of `shape`, or None if one of them is not compiled."""
    width, drawing = math.prod(shape), 0
    specs = []
    if type(links[0].module) is nn.Flatten:
        links = links[1:]
    for link in links:
        make = ON_FEATURES.get(type(link.module))
        if make is None:
            return None
        specs.append(make(link.module, width, drawing))
        width, drawing = specs[-1].outputs, drawing + link.draws
    return specs


@lru_cache(maxsize=64)
def word_names(epochs: int, places: int, layers: int, shared: bool, own: bool) -> tuple[np.ndarray, np.ndarray]:
    """The names of all random words of up to `places` batches an epoch, as `Masks` draws them: (groups, places, words)
    uint64 of layers of probability 1/2, and (epochs, places, layers) of others; empty where there are none."""
    groups, words = -(-epochs // epochs_a_word(layers)), -(-layers // 32)
    paths = (
        [shared_words(*path) for path in np.ndindex(groups, places, words)] if shared else [],
        [own_words(*path) for path in np.ndindex(epochs, places, layers)] if own else [],
    )
    first, second = (np.array([name_of(path)[0] for path in some], dtype=np.uint64) for some in paths)
    return first, second
