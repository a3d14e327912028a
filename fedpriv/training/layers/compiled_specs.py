"""What the compiled trainer computes for each layer."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedpriv.training.layers.parts import output_sides, paddings, pair
from fedpriv.training.random_words import threshold

DENSE, RELU, GROUP_NORM, NORM_OF_RELU, DROPOUT, CONVOLUTION = range(6)
TANH, SIGMOID, SILU, GELU_ERF, GELU_TANH, BLUR, POOL, KEEP, RECALL, ADD_SLOT = range(6, 16)
SEQUENCE, LAST_STEP, MEAN_OF_STEPS, LSTM, GRU, EMBEDDING, POSITIONS, ATTENTION, MASK = range(16, 25)
MOST_WORDS = 2**24
"""Words that C++, which reads them as float32, tells from each other."""


def fields(schema: type[Any], names: str) -> list[tuple[str, type[Any]]]:
    """Fields of one C type."""
    return [(name, schema) for name in names.split()]


class Sides(ctypes.Structure):
    """As in planes.h."""

    _fields_ = fields(ctypes.c_int64, "height width")


class LayerSpec(ctypes.Structure):
    """As in layers.h; from `inputs` on, `Geometry` of planes.h."""

    _fields_ = (
        fields(ctypes.c_int64, "schema flag number threshold offset steps")
        + fields(ctypes.c_double, "real")
        + fields(ctypes.c_int64, "inputs outputs")
        + fields(Sides, "sides kernel stride zeros window")
    )

    @property
    def parameters(self) -> int:
        """How many parameters C++ reads for it, and writes."""
        n, m = self.inputs, self.outputs
        gates = {LSTM: 4, GRU: 3}.get(self.schema, 0)
        counts = {
            DENSE: m * (n + self.flag),
            CONVOLUTION: m * (n * self.kernel.height * self.kernel.width + self.flag),
            GROUP_NORM: 2 * n * self.flag,
            NORM_OF_RELU: 2 * n * self.flag,
            EMBEDDING: self.number * m,
            POSITIONS: self.steps * n,
        }
        found: int = counts.get(self.schema, gates * m * (n + m + 2 * self.flag))
        return found


@dataclass(frozen=True)
class Place:
    """What a layer reads.

    width: features, or channels of images.
    sides: height and width of images.
    images: whether it reads images.
    steps: of sequences, each of `width` features; else 1.
    """

    width: int
    sides: tuple[int, ...] = (1, 1)
    images: bool = False
    steps: int = 1

    @property
    def flat(self) -> Place:
        """The same numbers as features."""
        return Place(self.width * math.prod(self.sides))

    def spec(self, schema: int, outputs: int | None = None, **others: Any) -> LayerSpec:
        """The layer that reads it."""
        sizes = {"inputs": self.width, "outputs": outputs or self.width}
        return LayerSpec(schema, sides=Sides(*self.sides), steps=self.steps, **sizes, **others)


Spec = tuple[list[LayerSpec], Place] | None
"""What a layer computes, and what the next one reads; None if it is not compiled."""
SpecMaker = Callable[[Any, Place, "Pooled"], Spec]
"""Of a layer, what it reads, and the pooling that follows a convolution."""


@dataclass(frozen=True)
class Pooled:
    """A pooling that a convolution computes itself.

    window: (1, 1) without one.
    mean: whether it takes means, not maxima.
    """

    window: tuple[int, int] = (1, 1)
    mean: bool = False


def dense(layer: Any, x: Place, pool: Pooled) -> Spec:
    """A linear layer."""
    if x.images:
        return None
    biased = layer.bias is not None
    written = Place(layer.out_features, steps=x.steps)
    return [x.spec(DENSE, layer.out_features, flag=biased)], written


def elementwise(schema: int) -> SpecMaker:
    """The maker of a function of single numbers."""
    return lambda layer, x, pool: ([x.spec(schema)], x)


def gelu(layer: Any, x: Place, pool: Pooled) -> Spec:
    """GELU, or its approximation."""
    return [x.spec(GELU_TANH if layer.approximate == "tanh" else GELU_ERF)], x


def group_norm(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Normalisation of features in one group."""
    if x.images or x.steps > 1 or layer.num_groups != 1:
        return None
    return [x.spec(GROUP_NORM, flag=layer.affine, real=layer.eps)], x


def layer_norm(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Normalisation of features."""
    if x.images or tuple(layer.normalized_shape) != (x.width,):
        return None
    return [x.spec(GROUP_NORM, flag=layer.weight is not None, real=layer.eps)], x


def recurrence(layer: Any, x: Place, pool: Pooled) -> Spec:
    """An LSTM or a GRU."""
    cell = layer.cell
    schema = LSTM if isinstance(cell, nn.LSTM) else GRU
    written = Place(cell.hidden_size, steps=x.steps)
    return [x.spec(schema, cell.hidden_size, flag=cell.bias)], written


def embedding(layer: Any, x: Place, pool: Pooled) -> Spec:
    """The vectors of words; each record is one sequence."""
    table = layer.num_embeddings, layer.embedding_dim
    if x.images or x.steps > 1 or tuple(layer.weight.shape) != table or table[0] > MOST_WORDS:
        return None
    spec = LayerSpec(
        EMBEDDING,
        number=layer.num_embeddings,
        steps=x.width,
        inputs=x.width,
        outputs=layer.embedding_dim,
        sides=Sides(1, 1),
    )
    return [spec], Place(layer.embedding_dim, steps=x.width)


def positions(layer: Any, x: Place, pool: Pooled) -> Spec:
    """A parameter that is added to every sequence."""
    return ([x.spec(POSITIONS)], x) if x.steps > 1 else None


def attention(layer: Any, x: Place, pool: Pooled) -> Spec:
    """The products that give queries, keys and values, what the heads make of them, and a linear
    layer."""
    own = layer.attention
    n = own.embed_dim
    all_three = Place(3 * n, steps=x.steps)
    first = x.spec(DENSE, 3 * n, flag=True)
    heads = all_three.spec(ATTENTION, n, number=own.num_heads)
    last = x.spec(DENSE, n, flag=True, offset=3 * n * (n + 1))
    return [first, heads, last], x


def one_step(schema: int) -> SpecMaker:
    """The maker of what reads a sequence and writes features."""
    return lambda layer, x, pool: ([x.spec(schema)], Place(x.width))


def dropout(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Dropout of features, or of whole channels of images."""
    if x.images == (type(layer) is nn.Dropout) or x.steps > 1:
        return None
    half = layer.p == 0.5
    scale = 1 / (1 - layer.p) if layer.p < 1 else 0.0
    limit = -1 if half else threshold(layer.p)
    return [x.spec(DROPOUT, flag=half, threshold=limit, real=scale)], x


def mask(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Dropout by a record's key: of single numbers, of whole channels of images or of whole
    steps."""
    if layer.whole == 0:
        coins = x.width * math.prod(x.sides)
    elif layer.whole == 2 and x.images:
        coins = x.width
    elif layer.whole == 1 and not x.images:
        coins = 1
    else:
        return None
    scale = 1 / (1 - layer.p) if layer.p < 1 else 0.0
    return [x.spec(MASK, flag=coins, threshold=threshold(layer.p), real=scale)], x


def convolution(layer: Any, x: Place, pool: Pooled) -> Spec:
    """A convolution, and maxima or means over windows of its output. ReLU and dropout of whole
    channels may come between it and the maxima: neither changes which number of a window is
    largest. Means of its output are its output for means of its input."""
    if not x.images or layer.dilation != (1, 1):
        return None
    stride = tuple(layer.stride)
    zeros = paddings(layer)
    sides = tuple(side // part for side, part in zip(output_sides(layer, x.sides), pool.window))
    if not all(sides):
        return None
    before = []
    read, window = x, pool.window
    if pool.mean:
        means = x.spec(BLUR, stride=Sides(*stride), zeros=Sides(*zeros), window=Sides(*pool.window))
        before.append(means)
        blurred = (
            side + 2 * zero - (part - 1) * step
            for side, zero, part, step in zip(x.sides, zeros, pool.window, stride)
        )
        read = Place(x.width, tuple(blurred), images=True)
        stride = tuple(step * part for step, part in zip(stride, pool.window))
        zeros, window = (0, 0), (1, 1)
    spec = read.spec(
        CONVOLUTION,
        layer.out_channels,
        flag=layer.bias is not None,
        kernel=Sides(*layer.kernel_size),
        stride=Sides(*stride),
        zeros=Sides(*zeros),
        window=Sides(*window),
    )
    return [*before, spec], Place(layer.out_channels, sides, images=True)


def pool(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Means or maxima that no convolution computes."""
    mean = isinstance(layer, nn.AvgPool2d)
    window, stride = pair(layer.kernel_size), pair(layer.stride)
    plain = pair(layer.padding) == (0, 0) and not layer.ceil_mode
    if not x.images or not plain or (not mean and pair(layer.dilation) != (1, 1)):
        return None
    sides = tuple((side - part) // step + 1 for side, part, step in zip(x.sides, window, stride))
    spec = x.spec(POOL, flag=mean, window=Sides(*window), stride=Sides(*stride))
    return [spec], Place(x.width, sides, images=True)


def whole_average(layer: Any, x: Place, pool: Pooled) -> Spec:
    """The mean of each channel."""
    if not x.images:
        return None
    whole = Sides(*x.sides)
    return [x.spec(POOL, flag=True, window=whole, stride=whole)], Place(
        x.width, (1, 1), images=True
    )


def flatten(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Nothing: images and their features lie in memory alike."""
    known = layer.end_dim in (-1, 3 if x.images else 1) and x.steps == 1
    return ([], x.flat) if known else None


def reshape(layer: Any, x: Place, pool: Pooled) -> Spec:
    """Nothing, for features that become an image."""
    if len(layer.shape) != 3 or x.steps > 1:
        return None
    return [], Place(layer.shape[0], tuple(layer.shape[1:]), images=True)
