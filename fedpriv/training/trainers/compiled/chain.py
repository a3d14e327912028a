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

from fedpriv.models.tasks import BinaryClassification, Classification, Task
from fedpriv.training.random_words import name_of, threshold
from fedpriv.training.trainers.buffers import epochs_a_word, own_words, shared_words
from fedpriv.training.trainers.compile_layers import Link, compile_layers
from fedpriv.training.trainers.layers.convolution import output_sides, paddings

DENSE, RELU, GROUP_NORM, NORM_OF_RELU, DROPOUT, CONVOLUTION = range(6)
CROSS_ENTROPY, LOGISTIC = range(2)
LOSSES: dict[type[Task], tuple[int, type[np.generic]]] = {
    Classification: (CROSS_ENTROPY, np.int64),
    BinaryClassification: (LOGISTIC, np.float32),
}
"""The losses whose gradients are compiled, and the type of their labels."""


class Sides(ctypes.Structure):
    """As in planes.h."""

    _fields_ = (("height", ctypes.c_int64), ("width", ctypes.c_int64))


class LayerSpec(ctypes.Structure):
    """As in training.cpp."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("kind", "flag", "number", "threshold")),
        ("real", ctypes.c_double),
        *(
            (name, ctypes.c_int64) for name in ("inputs", "outputs")
        ),  # from here on, `Geometry` of planes.h
        *((name, Sides) for name in ("sides", "kernel", "stride", "zeros", "window")),
    )


@dataclass(frozen=True)
class Place:
    """What a layer reads: `width` features, or channels of images with `sides`; and how many layers
    before it draw random numbers."""

    width: int
    sides: tuple[int, ...] = (1, 1)
    drawing: int = 0

    def spec(self, kind: int, outputs: int | None = None, **others: Any) -> LayerSpec:
        """The layer that reads it."""
        return LayerSpec(
            kind,
            inputs=self.width,
            outputs=outputs or self.width,
            sides=Sides(*self.sides),
            **others,
        )


Made = tuple[list[LayerSpec], Place]
"""What is computed, and what the next layer reads, up to its count of drawing layers."""


def _dense(link: Link, x: Place) -> Made:
    leaf: Any = link.module
    return [x.spec(DENSE, leaf.out_features, flag=leaf.bias is not None)], Place(leaf.out_features)


def _relu(_: Link, x: Place) -> Made:
    return [x.spec(RELU)], x


def _group_norm(link: Link, x: Place) -> Made:
    leaf: Any = link.module
    return [x.spec(GROUP_NORM, flag=leaf.affine, real=leaf.eps)], x


def _dropout(link: Link, x: Place) -> Made:
    leaf: Any = link.module
    half = leaf.p == 0.5
    scale = 1 / (1 - leaf.p) if leaf.p < 1 else 0.0
    limit = -1 if half else threshold(leaf.p)
    return [x.spec(DROPOUT, flag=half, number=x.drawing, threshold=limit, real=scale)], x


def _convolution(link: Link, x: Place) -> Made:
    """With the maxima that are taken of it: ReLU and dropout of whole channels between the two do
    the same after them, since neither changes which number of a window is largest."""
    leaf: Any = link.module
    made = x.spec(
        CONVOLUTION,
        leaf.out_channels,
        flag=leaf.bias is not None,
        kernel=Sides(*leaf.kernel_size),
        stride=Sides(*leaf.stride),
        zeros=Sides(*paddings(leaf)),
        window=Sides(*link.pool),
    )
    height, width = (side // part for side, part in zip(output_sides(leaf, x.sides), link.pool))
    return [made], Place(leaf.out_channels, (height, width))


def _max_pool(_: Link, x: Place) -> Made:
    return [], x  # the convolution before it has done it


def _flatten(_: Link, x: Place) -> Made:
    return [], Place(x.width * math.prod(x.sides))  # images lie as their features do


Kinds = dict[type[nn.Module], Callable[[Link, Place], Made]]

ON_FEATURES: Kinds = {
    nn.Linear: _dense,
    nn.ReLU: _relu,
    nn.GroupNorm: _group_norm,
    nn.Dropout: _dropout,
}
ON_IMAGES: Kinds = {
    nn.Conv2d: _convolution,
    nn.MaxPool2d: _max_pool,
    nn.ReLU: _relu,
    nn.Dropout2d: _dropout,
    nn.Flatten: _flatten,
}


@dataclass(frozen=True)
class Chain:
    """The layers of a network, and how many outputs the last one has."""

    layers: ctypes.Array[LayerSpec]
    outputs: int


_known: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Chain | None]] = WeakKeyDictionary()


def known_chain(model: nn.Module, shape: tuple[int, ...]) -> Chain | None:
    """The layers of a network on records of `shape`, or None if one of them is not compiled; found
    once."""
    known = _known.setdefault(model, {})
    if shape not in known:
        links = compile_layers(model, shape)
        known[shape] = None if links is None else _chain(links, shape)
    return known[shape]


def _chain(links: Sequence[Link], shape: tuple[int, ...]) -> Chain | None:
    kinds = ON_IMAGES if len(shape) > 1 else ON_FEATURES
    x = Place(shape[0], shape[1:] or (1, 1))
    specs: list[LayerSpec] = []
    for link in links:
        make = kinds.get(type(link.module))
        if make is None:
            return None
        computed, read = make(link, x)
        if computed and computed[0].kind == GROUP_NORM and specs and specs[-1].kind == RELU:
            specs.pop()  # the norm does it on the way
            computed[0].kind = NORM_OF_RELU
        specs += computed
        x = replace(read, drawing=x.drawing + link.draws)
        kinds = ON_FEATURES if type(link.module) is nn.Flatten else kinds
    return Chain((LayerSpec * len(specs))(*specs), x.width)


@lru_cache(maxsize=64)
def word_names(
    epochs: int, places: int, layers: int, shared: bool, own: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The names of all random words of up to `places` batches an epoch, as `Masks` draws them:
    (groups, places, words) uint64 of layers of probability 1/2, and (epochs, places, layers) of
    others; empty where there are none."""
    groups = -(-epochs // epochs_a_word(layers))
    words = -(-layers // 32)
    paths = (
        [shared_words(*path) for path in np.ndindex(groups, places, words)] if shared else [],
        [own_words(*path) for path in np.ndindex(epochs, places, layers)] if own else [],
    )
    first, second = (
        np.array([name_of(path)[0] for path in some], dtype=np.uint64) for some in paths
    )
    return first, second
