"""Which chains of layers are compiled, and what they are called there."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from torch import nn

from fedpriv.tasks import BinaryClassification, Classification, Task
from fedpriv.training.random_words import name_of, threshold
from fedpriv.training.trainers.buffers import epochs_a_word, own_words, shared_words
from fedpriv.training.trainers.compile_layers import Link, compile_layers, pair
from fedpriv.training.trainers.layers.convolution import output_sides, paddings

DENSE, RELU, GROUP_NORM, DROPOUT, CONVOLUTION, MAX_POOL, FLATTEN = range(7)
CROSS_ENTROPY, LOGISTIC = range(2)
LOSSES: dict[type[Task], tuple[int, type[np.generic]]] = {
    Classification: (CROSS_ENTROPY, np.int64),
    BinaryClassification: (LOGISTIC, np.float32),
}
"""The losses whose gradients are compiled, and the type of their labels."""


class Sides(ctypes.Structure):
    """As in images.h."""

    _fields_ = (("height", ctypes.c_int64), ("width", ctypes.c_int64))


class LayerSpec(ctypes.Structure):
    """As in training.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "inputs", "outputs", "flag", "number", "threshold")),
        ("real", ctypes.c_double),
        *((name, Sides) for name in ("sides", "kernel", "stride", "zeros")),
    )


@dataclass(frozen=True)
class Place:
    """What a layer reads: `width` features, or channels of images with `sides`; whether it is the records themselves;
    and how many layers before it draw random numbers."""

    width: int
    sides: tuple[int, ...] = (1, 1)
    records: bool = False
    drawing: int = 0

    def spec(self, kind: int, outputs: int | None = None, **others: Any) -> LayerSpec:
        """The layer that reads it."""
        return LayerSpec(kind, self.width, outputs or self.width, sides=Sides(*self.sides), **others)


Made = tuple[LayerSpec, Place]
"""A layer, and what the next one reads, up to its count of drawing layers."""


def _dense(leaf: Any, x: Place) -> Made:
    return x.spec(DENSE, leaf.out_features, flag=leaf.bias is not None), Place(leaf.out_features)


def _relu(_: Any, x: Place) -> Made:
    return x.spec(RELU), x


def _group_norm(leaf: Any, x: Place) -> Made:
    return x.spec(GROUP_NORM, flag=leaf.affine, real=leaf.eps), x


def _dropout(leaf: Any, x: Place) -> Made:
    half, scale = leaf.p == 0.5, 1 / (1 - leaf.p) if leaf.p < 1 else 0.0
    limit = -1 if half else threshold(leaf.p)
    return x.spec(DROPOUT, flag=half, number=x.drawing, threshold=limit, real=scale), x


def _convolution(leaf: Any, x: Place) -> Made:
    kernel, stride, zeros = Sides(*leaf.kernel_size), Sides(*leaf.stride), Sides(*paddings(leaf))
    made = x.spec(
        CONVOLUTION,
        leaf.out_channels,
        flag=leaf.bias is not None,
        number=x.records,
        kernel=kernel,
        stride=stride,
        zeros=zeros,
    )
    return made, Place(leaf.out_channels, output_sides(leaf, x.sides))


def _max_pool(leaf: Any, x: Place) -> Made:
    window = pair(leaf.kernel_size)
    sides = tuple(side // part for side, part in zip(x.sides, window))
    return x.spec(MAX_POOL, kernel=Sides(*window)), Place(x.width, sides)


def _flatten(_: Any, x: Place) -> Made:
    features = x.width * math.prod(x.sides)
    return x.spec(FLATTEN, features), Place(features)


Kinds = dict[type[nn.Module], Callable[[Any, Place], Made]]

ON_FEATURES: Kinds = {nn.Linear: _dense, nn.ReLU: _relu, nn.GroupNorm: _group_norm, nn.Dropout: _dropout}
ON_IMAGES: Kinds = {
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _max_pool,
    nn.ReLU: _relu,
    nn.Dropout2d: _dropout,
    nn.Flatten: _flatten,
}


_known: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], ctypes.Array[LayerSpec] | None]] = WeakKeyDictionary()


def known_specs(model: nn.Module, shape: tuple[int, ...]) -> ctypes.Array[LayerSpec] | None:
    """The layers of a network on records of `shape`, or None if one of them is not compiled; found once."""
    known = _known.setdefault(model, {})
    if shape not in known:
        links = compile_layers(model, shape)
        specs = None if links is None else _layer_specs(links, shape)
        known[shape] = None if specs is None else (LayerSpec * len(specs))(*specs)
    return known[shape]


def _layer_specs(links: Sequence[Link], shape: tuple[int, ...]) -> list[LayerSpec] | None:
    if type(links[0].module) is nn.Flatten:
        links, shape = links[1:], (math.prod(shape),)
    kinds, x = (ON_IMAGES, Place(shape[0], shape[1:], True)) if len(shape) == 3 else (ON_FEATURES, Place(shape[0]))
    specs = []
    for link in links:
        make = kinds.get(type(link.module))
        if make is None:
            return None
        spec, read = make(link.module, x)
        specs.append(spec)
        x = replace(read, records=False, drawing=x.drawing + link.draws)
        kinds = ON_FEATURES if spec.kind == FLATTEN else kinds
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
