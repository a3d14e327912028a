"""What the compiled trainer computes for each layer."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedpriv.training.layers.convolution import output_sides, paddings
from fedpriv.training.random_words import threshold

DENSE, RELU, GROUP_NORM, NORM_OF_RELU, DROPOUT, CONVOLUTION = range(6)


def fields(schema: type[Any], names: str) -> list[tuple[str, type[Any]]]:
    """Fields of one C type."""
    return [(name, schema) for name in names.split()]


class Sides(ctypes.Structure):
    """As in planes.h."""

    _fields_ = fields(ctypes.c_int64, "height width")


class LayerSpec(ctypes.Structure):
    """As in training.cpp; from `inputs` on, `Geometry` of planes.h."""

    _fields_ = (
        fields(ctypes.c_int64, "schema flag number threshold")
        + fields(ctypes.c_double, "real")
        + fields(ctypes.c_int64, "inputs outputs")
        + fields(Sides, "sides kernel stride zeros window")
    )


@dataclass(frozen=True)
class Place:
    """What a layer reads.

    width: features, or channels of images.
    sides: height and width of images.
    images: whether it reads images.
    drawing: how many layers before it draw random numbers.
    """

    width: int
    sides: tuple[int, ...] = (1, 1)
    images: bool = False
    drawing: int = 0

    def spec(self, schema: int, outputs: int | None = None, **others: Any) -> LayerSpec:
        """The layer that reads it."""
        sizes = {"inputs": self.width, "outputs": outputs or self.width}
        return LayerSpec(schema, sides=Sides(*self.sides), **sizes, **others)


Spec = tuple[list[LayerSpec], Place] | None
"""What a layer computes, and what the next one reads, up to its count of drawing layers; None if it
is not compiled."""
SpecMaker = Callable[[Any, Place, tuple[int, int]], Spec]
"""Of a layer, what it reads, and the window of the max-pooling that follows a convolution."""


def dense(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """A linear layer."""
    biased = layer.bias is not None
    return [x.spec(DENSE, layer.out_features, flag=biased)], Place(layer.out_features)


def relu(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """Positive parts."""
    return [x.spec(RELU)], x


def group_norm(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """Normalisation of features in one group."""
    return [x.spec(GROUP_NORM, flag=layer.affine, real=layer.eps)], x


def dropout(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """Dropout of features, or of whole channels of images."""
    if x.images and type(layer) is nn.Dropout:
        return None
    half = layer.p == 0.5
    scale = 1 / (1 - layer.p) if layer.p < 1 else 0.0
    limit = -1 if half else threshold(layer.p)
    return [x.spec(DROPOUT, flag=half, number=x.drawing, threshold=limit, real=scale)], x


def convolution(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """A convolution and the maxima of its output. ReLU and dropout of whole channels may come
    between the two: neither changes which number of a window is largest."""
    spec = x.spec(
        CONVOLUTION,
        layer.out_channels,
        flag=layer.bias is not None,
        kernel=Sides(*layer.kernel_size),
        stride=Sides(*layer.stride),
        zeros=Sides(*paddings(layer)),
        window=Sides(*pool),
    )
    sides = tuple(side // part for side, part in zip(output_sides(layer, x.sides), pool))
    return [spec], Place(layer.out_channels, sides, images=True)


def max_pool(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """Nothing: the convolution before it computes the maxima."""
    return [], x


def flatten(layer: Any, x: Place, pool: tuple[int, int]) -> Spec:
    """Nothing: images and their features lie in memory alike."""
    return [], Place(x.width * math.prod(x.sides))
