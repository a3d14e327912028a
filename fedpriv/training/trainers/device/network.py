"""Which networks the kernel trains, and the part of its source that is written for a network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedpriv.training.layers.chain import Unmapped
from fedpriv.training.layers.compiled_specs import (
    CONVOLUTION,
    DENSE,
    DROPOUT,
    GELU_ERF,
    GELU_TANH,
    GROUP_NORM,
    NORM_OF_RELU,
    RELU,
    SIGMOID,
    SILU,
    TANH,
    LayerSpec,
)
from fedpriv.training.layers.traced import UnmappedError
from fedpriv.training.trainers.compiled.losses import CompiledLoss
from fedpriv.training.trainers.compiled.network import CompiledNetwork

RECORD, NOWHERE = -1, -2
"""Places of a row that are none: the record itself, and a gradient that nobody needs."""
ELEMENTWISE = {
    RELU: "ReLU",
    TANH: "Tanh",
    SIGMOID: "Sigmoid",
    SILU: "SiLU",
    GELU_ERF: "GELU",
    GELU_TANH: "GELUByTanh",
}
READS_OUTPUT = TANH, SIGMOID
"""Functions whose slope is computed from their value, which must stay as it is."""
READS_INPUT = SILU, GELU_ERF, GELU_TANH
LANES = 32
REGISTERS = 40
"""Sums of a lane that fit its registers, with a window of the input."""
MOST_DRAWING = 32
"""Most layers that draw random numbers: they share one word."""
CONVOLVING_TEAMS = 16, 12, 8, 4
"""Teams of a block where each needs scratch memory: as many as fit."""
DENSE_TEAMS = 32
ROWS_TOGETHER = 2
"""Rows of features that a team computes at once: more registers, and fewer loads of weights."""
LEAST_ROWS = 16
"""Rows of a batch that must fit shared memory together, or all lie outside."""
ROWS_OUTSIDE = 256
"""Rows of a batch at once, where they lie outside of shared memory."""
HEAD = 4
"""Numbers of shared memory before the weights."""


LAYERS = """#pragma once
{reals}

struct Network {{
  static constexpr int ROW = {row}, WEIGHTS = {weights}, SCRATCH = {scratch};
  static constexpr int FEATURES = {features}, OUTPUTS = {outputs}, LOSS = {loss};
  static constexpr int Z = {z}, GZ = {gz}, SHARED_WORDS = {coins}, WORDS = {words};
  static constexpr bool SHARED_ARENA = {inside};
  typedef Chain<{types}> Layers;
}};
"""


@dataclass(frozen=True)
class DeviceNetwork:
    """A network's part of the kernel.

    layers: the text of layers.h.
    loss: whose gradient the kernel computes.
    teams: of a block, at most.
    outputs: of the network.
    weights, scratch, row: numbers of all weights, of a team's scratch memory, and of a row of the
        arena.
    inside: rows of the arena that fit shared memory; 0: it lies outside.
    halves: as in `CompiledNetwork`.
    """

    layers: str
    loss: CompiledLoss
    teams: int
    outputs: int
    weights: int
    scratch: int
    row: int
    inside: int
    halves: tuple[bool, ...]

    def rows(self, batch: int) -> int:
        """Rows of a batch that are computed at once. A user's bits depend on it."""
        return min(batch, self.inside or ROWS_OUTSIDE)

    def shared_bytes(self, teams: int, rows: int) -> int:
        """Shared memory of a block."""
        arena = rows * self.row if self.inside else 0
        return 4 * (HEAD + self.weights + teams * self.scratch + arena)

    def sizes(self, teams: int) -> str:
        """The text of sizes.h, for at most so many teams."""
        together = 1 if self.scratch else ROWS_TOGETHER
        numbers = {"MOST_TEAMS": teams, "LEAST_BLOCKS": 1, "ROWS_TOGETHER": together}
        return "".join(f"#define {name} {number}\n" for name, number in numbers.items())


def device_network(
    network: CompiledNetwork, features: int, loss: CompiledLoss, shared_memory: int
) -> DeviceNetwork | Unmapped:
    """The kernel's part for a network on records of `features` numbers, or why there is none.

    shared_memory: bytes that a block may have.
    """
    try:
        return _Writer(network, features).finished(loss, shared_memory)
    except UnmappedError as error:
        return Unmapped(str(error))


class _Layer(NamedTuple):
    """A layer of the kernel.

    text: of its type, where {lowest} says whether nobody needs the gradient of what it reads, and
        {gradients} stands for the places of gradients.
    reads: numbers that it reads, if its gradients of input and output have places of their own; 0:
        there is one.
    parameters: whether it has any.
    """

    text: str
    reads: int
    parameters: bool


class _Writer:
    """Gives every number of a row, and every weight, its place. Raises UnmappedError for a layer
    that the kernel does not have.

    row, weights, scratch: numbers so far.
    at, width: place and size of what the next layer reads.
    kept: whether it must stay as it is.
    coins: most of a layer of probability 1/2.
    words: place of their words.
    """

    def __init__(self, network: CompiledNetwork, features: int) -> None:
        self.network = network
        self.features = self.width = features
        self.row = self.weights = self.scratch = 0
        self.at, self.kept = RECORD, True
        self.layers: list[_Layer] = []
        self.reals: dict[float, int] = {}
        if len(network.halves) > MOST_DRAWING:
            raise UnmappedError(f"more than {MOST_DRAWING} layers draw random numbers")
        dropping = [spec for spec in network.layers if spec.schema == DROPOUT]
        self.coins = max((spec.inputs for spec in dropping if spec.flag), default=0)
        self.words = self._place(self.coins)
        if network.layers[0].schema != CONVOLUTION:
            copy = self._place(features)
            self._add(f"Record<{features}, {copy}>")
            self.at, self.kept = copy, False
        for spec in network.layers:
            if spec.steps != 1:
                raise UnmappedError("sequences train on the processor")
            if spec.schema not in LAYERS_OF:
                raise UnmappedError(
                    f"the kernel has no layer for number {spec.schema} of the table"
                )
            LAYERS_OF[spec.schema](self, spec)

    def dense(self, spec: LayerSpec) -> None:
        n, m = spec.inputs, spec.outputs
        own = self._weights(n * (m | 1) + m)
        x, y = self._written(m)
        sizes = f"{n}, {m}, {_text(spec.flag)}, {{lowest}}, {spec.offset}"
        self._add(f"Dense<{sizes}, {own}, {x}, {y}, {{gradients}}>", n, parameters=True)

    def norm(self, spec: LayerSpec) -> None:
        n = spec.inputs
        own = self._weights(2 * n if spec.flag else 0)
        stats = self._place(2)
        x, y = self._written(n)
        sizes = f"{n}, {_text(spec.schema == NORM_OF_RELU)}, {_text(spec.flag)}"
        places = f"{self._real(spec.real)}, {spec.offset}, {own}, {x}, {y}, {stats}"
        self._add(f"Norm<{sizes}, {places}, {{gradients}}>", n, parameters=bool(spec.flag))

    def elementwise(self, spec: LayerSpec) -> None:
        x, y = self._in_place(spec.schema in READS_INPUT)
        self.kept = spec.schema in READS_OUTPUT
        name = ELEMENTWISE[spec.schema]
        self._add(f"Elementwise<{name}, {self.width}, {x}, {y}, {{gradients}}>")

    def dropout(self, spec: LayerSpec) -> None:
        x, y = self._in_place(False)
        self.kept = False
        sizes = f"{spec.inputs}, {self.width // spec.inputs}, {_text(spec.flag)}"
        draws = f"{spec.number}, {spec.threshold}, {self._real(spec.real)}, {self.words}"
        self._add(f"Dropout<{sizes}, {draws}, {x}, {y}, {{gradients}}>")

    def convolution(self, spec: LayerSpec) -> None:
        strides = spec.stride.height, spec.stride.width, spec.zeros.height, spec.zeros.width
        if strides != (1, 1, 0, 0):
            raise UnmappedError("the kernel's convolutions have stride 1 and no padding")
        c, m = spec.inputs, spec.outputs
        h, w = spec.sides.height, spec.sides.width
        kernel = spec.kernel.height, spec.kernel.width
        window = spec.window.height, spec.window.width
        high, wide = ((a - k + 1) // p for a, k, p in zip((h, w), kernel, window))
        area, field = math.prod(window), math.prod(kernel)
        if max(area, field) > REGISTERS:
            raise UnmappedError("a kernel or a window is too large for registers")
        own = self._weights(m * (c * field + 1))
        self.scratch = max(self.scratch, _fours(c * h * w))
        arguments = self._place(-(-m * high * wide // 4)) if area > 1 else 0
        x, y = self._written(m * high * wide)
        together = _together(m, high * wide, area)
        sizes = ", ".join(map(str, (c, h, w, m, *kernel, *window, together, _text(spec.flag))))
        places = f"{spec.offset}, {own}, {x}, {y}, {arguments}"
        text = f"Convolution<{sizes}, {{lowest}}, {places}, {{gradients}}>"
        self._add(text, c * h * w, parameters=True)

    def finished(self, loss: CompiledLoss, shared_memory: int) -> DeviceNetwork:
        """The finished part."""
        z, outputs = self.at, self.network.outputs
        types, gz = self._with_gradients(outputs)
        wanted = CONVOLVING_TEAMS if self.scratch else (DENSE_TEAMS,)
        free = shared_memory // 4 - HEAD - self.weights
        fitting = [teams for teams in wanted if teams * self.scratch <= free]
        if not fitting:
            raise UnmappedError("its parameters do not fit a block's shared memory")
        inside = 0 if self.scratch or free < LEAST_ROWS * self.row else free // self.row
        reals = (
            f"struct Real{place} {{ static constexpr float value = {value!r}f; }};"
            for value, place in self.reals.items()
        )
        layers = LAYERS.format(
            reals="\n".join(reals),
            row=self.row,
            weights=self.weights,
            scratch=self.scratch,
            features=self.features,
            outputs=outputs,
            z=z,
            gz=gz,
            loss=loss.schema,
            coins=self.coins,
            words=self.words,
            inside=_text(inside),
            types=",\n                ".join(types),
        )
        return DeviceNetwork(
            layers=layers,
            loss=loss,
            teams=fitting[0],
            outputs=outputs,
            weights=self.weights,
            scratch=self.scratch,
            row=self.row,
            inside=inside,
            halves=self.network.halves,
        )

    def _with_gradients(self, outputs: int) -> tuple[list[str], int]:
        """The layers' types, and where the loss's gradient is."""
        with_parameters = [i for i, layer in enumerate(self.layers) if layer.parameters]
        if not with_parameters:
            raise UnmappedError("it has no parameters")
        lowest = with_parameters[0]
        at = first = self._place(outputs)
        types = []
        for i, layer in reversed(list(enumerate(self.layers))):
            gradients = str(at if i >= lowest else NOWHERE)
            if i >= lowest and layer.reads:
                at = NOWHERE if i == lowest else self._place(layer.reads)
                gradients = f"{at}, {gradients}"
            types.append(layer.text.format(lowest=_text(i == lowest), gradients=gradients))
        return types[::-1], first

    def _add(self, text: str, reads: int = 0, *, parameters: bool = False) -> None:
        self.layers.append(_Layer(text, reads, parameters))

    def _written(self, width: int) -> tuple[int, int]:
        """Places of what a layer reads and of `width` numbers that it writes elsewhere."""
        read, self.at, self.width, self.kept = self.at, self._place(width), width, False
        return read, self.at

    def _in_place(self, reads_input: bool) -> tuple[int, int]:
        if self.kept or reads_input or self.at < 0:
            return self._written(self.width)
        return self.at, self.at

    def _place(self, numbers: int) -> int:
        place, self.row = self.row, self.row + _fours(numbers)
        return place

    def _weights(self, numbers: int) -> int:
        place, self.weights = self.weights, self.weights + _fours(numbers)
        return place

    def _real(self, value: float) -> str:
        """The type of a number; layers of equal numbers share it, and their code."""
        place = self.reals.setdefault(value, len(self.reals))
        return f"Real{place}"


LAYERS_OF = {
    DENSE: _Writer.dense,
    GROUP_NORM: _Writer.norm,
    NORM_OF_RELU: _Writer.norm,
    DROPOUT: _Writer.dropout,
    CONVOLUTION: _Writer.convolution,
    **dict.fromkeys(ELEMENTWISE, _Writer.elementwise),
}


def _fours(numbers: int) -> int:
    return -(-numbers // 4) * 4


def _text(flag: int) -> str:
    return "true" if flag else "false"


def _together(outputs: int, positions: int, area: int) -> int:
    """Channels that a lane computes at once: so many that few lanes stay idle."""

    def key(together: int) -> tuple[float, int]:
        items = positions * outputs // together
        return items / (-(-items // LANES) * LANES), together

    fitting = [n for n in range(1, outputs + 1) if outputs % n == 0 and n * area <= REGISTERS]
    return max(fitting, key=key)
