"""Which networks the kernel trains, and the part of its source that is written for a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
from fedpriv.training.layers.mapping import Unmapped
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


@dataclass(frozen=True)
class DeviceNetwork:
    """A network's part of the kernel.

    sizes, layers: the texts of sizes.h and layers.h.
    teams: of a block, at most.
    outputs: of the network.
    weights, scratch, row: numbers of all weights, of a team's scratch memory, and of a row of the
        arena.
    inside: rows of the arena that fit shared memory; 0: it lies outside.
    drawing: how many layers draw random numbers.
    shared_words, own_words: whether layers of probability 1/2, and others, draw them.
    """

    sizes: str
    layers: str
    teams: int
    outputs: int
    weights: int
    scratch: int
    row: int
    inside: int
    drawing: int
    shared_words: bool
    own_words: bool

    def rows(self, batch: int) -> int:
        """Rows of a batch that are computed at once. A user's bits depend on it."""
        return min(batch, self.inside or ROWS_OUTSIDE)

    def shared_bytes(self, teams: int, rows: int) -> int:
        """Shared memory of a block."""
        arena = rows * self.row if self.inside else 0
        return 4 * (HEAD + self.weights + teams * self.scratch + arena)


def device_network(
    network: CompiledNetwork, features: int, *, logistic: bool, shared_memory: int
) -> DeviceNetwork | Unmapped:
    """The kernel's part for a network on records of `features` numbers, or why there is none.

    shared_memory: bytes that a block may have.
    """
    writer = _Writer(network, features)
    for spec in network.layers:
        obstacle = writer.add(spec)
        if obstacle:
            return Unmapped(obstacle)
    if not any(layer.parameters for layer in writer.layers):
        return Unmapped("it has no parameters")
    return writer.finished(network.outputs, logistic, shared_memory)


@dataclass
class _Layer:
    """A layer of the kernel.

    text: of its type, but for the places of gradients.
    parameters: whether it has any.
    moves: whether its gradients of input and output have places of their own; else there is one.
    reads: numbers that it reads.
    """

    text: Callable[[str, bool], str]
    parameters: bool
    moves: bool
    reads: int


@dataclass
class _Writer:
    """Gives every number of a row, and every weight, its place.

    row, weights, scratch: numbers so far.
    at, width: place and size of what the next layer reads.
    kept: whether it must stay as it is.
    halves: most coins of a layer of probability 1/2.
    words: place of their words.
    """

    network: CompiledNetwork
    features: int
    row: int = 0
    weights: int = 0
    scratch: int = 0
    at: int = RECORD
    width: int = 0
    kept: bool = True
    halves: int = 0
    words: int = 0
    drawing: int = 0
    own_words: bool = False
    layers: list[_Layer] = field(default_factory=list)
    reals: dict[float, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.width = self.features
        specs = self.network.layers
        dropping = [spec for spec in specs if spec.schema == DROPOUT]
        self.drawing = len(dropping)
        self.halves = max((spec.inputs for spec in dropping if spec.flag), default=0)
        self.words = self._place(self.halves)
        if specs[0].schema != CONVOLUTION:
            copy = self._place(self.features)
            self._add(f"Record<{self.features}, {copy}>")
            self.at, self.kept = copy, False

    def add(self, spec: LayerSpec) -> str | None:
        """Add a layer, or say why it cannot be."""
        if spec.steps != 1:
            return "sequences train on the processor"
        if self.drawing > MOST_DRAWING:
            return f"more than {MOST_DRAWING} layers draw random numbers"
        if spec.schema == DENSE:
            self._dense(spec)
        elif spec.schema in (GROUP_NORM, NORM_OF_RELU):
            self._norm(spec)
        elif spec.schema in ELEMENTWISE:
            self._elementwise(spec)
        elif spec.schema == DROPOUT:
            self._dropout(spec)
        elif spec.schema == CONVOLUTION:
            return self._convolution(spec)
        else:
            return f"the kernel has no layer for number {spec.schema} of the table"
        return None

    def _dense(self, spec: LayerSpec) -> None:
        n, m, biased = spec.inputs, spec.outputs, bool(spec.flag)
        own = self._weights(n * (m | 1) + m)
        x, y = self._written(m)
        self._add(
            lambda gradients, lowest: (
                f"Dense<{n}, {m}, {_text(biased)}, {_text(lowest)}, {spec.offset}, {own}, {x}, "
                f"{y}, {gradients}>"
            ),
            parameters=True,
            reads=n,
        )

    def _norm(self, spec: LayerSpec) -> None:
        n, affine, rectified = spec.inputs, bool(spec.flag), spec.schema == NORM_OF_RELU
        own = self._weights(2 * n if affine else 0)
        stats = self._place(2)
        x, y = self._written(n)
        epsilon = self._real(spec.real)
        self._add(
            lambda gradients, _: (
                f"Norm<{n}, {_text(rectified)}, {_text(affine)}, {epsilon}, {spec.offset}, {own}, "
                f"{x}, {y}, {stats}, {gradients}>"
            ),
            parameters=affine,
            reads=n,
        )

    def _elementwise(self, spec: LayerSpec) -> None:
        n = self.width
        x, y = self._in_place(n, spec.schema in READS_INPUT)
        self.kept = spec.schema in READS_OUTPUT
        name = ELEMENTWISE[spec.schema]
        self._add(lambda gradients, _: f"Elementwise<{name}, {n}, {x}, {y}, {gradients}>")

    def _dropout(self, spec: LayerSpec) -> None:
        half = bool(spec.flag)
        area = self.width // spec.inputs
        x, y = self._in_place(self.width, False)
        self.kept = False
        scale = self._real(spec.real)
        self.own_words |= not half
        head = f"{spec.inputs}, {area}, {_text(half)}, {spec.number}, {spec.threshold}"
        self._add(
            lambda gradients, _: f"Dropout<{head}, {scale}, {self.words}, {x}, {y}, {gradients}>"
        )

    def _convolution(self, spec: LayerSpec) -> str | None:
        if (
            (spec.stride.height, spec.stride.width) != (1, 1)
            or spec.zeros.height
            or spec.zeros.width
        ):
            return "the kernel's convolutions have stride 1 and no padding"
        c, m, biased = spec.inputs, spec.outputs, bool(spec.flag)
        h, w = spec.sides.height, spec.sides.width
        kernel = spec.kernel.height, spec.kernel.width
        window = spec.window.height, spec.window.width
        high, wide = ((a - k + 1) // p for a, k, p in zip((h, w), kernel, window))
        area = window[0] * window[1]
        if area > REGISTERS or kernel[0] * kernel[1] > REGISTERS:
            return "a kernel or a window is too large for registers"
        together = _together(m, high * wide, area)
        own = self._weights(m * (c * kernel[0] * kernel[1] + 1))
        self.scratch = max(self.scratch, _fours(c * h * w))
        arguments = self._place(-(-m * high * wide // 4)) if area > 1 else 0
        x, y = self._written(m * high * wide)
        sizes = ", ".join(map(str, (c, h, w, m, *kernel, *window, together)))
        self._add(
            lambda gradients, lowest: (
                f"Convolution<{sizes}, {_text(biased)}, {_text(lowest)}, {spec.offset}, {own}, "
                f"{x}, {y}, {arguments}, {gradients}>"
            ),
            parameters=True,
            reads=c * h * w,
        )
        return None

    def finished(
        self, outputs: int, logistic: bool, shared_memory: int
    ) -> DeviceNetwork | Unmapped:
        """The finished part."""
        z = self.at
        types, gz = self._with_gradients(outputs)
        inside, together = 0, 1
        if self.scratch:
            fits = [
                teams
                for teams in CONVOLVING_TEAMS
                if 4 * (HEAD + self.weights + teams * self.scratch) <= shared_memory
            ]
            if not fits:
                return Unmapped("its parameters do not fit a block's shared memory")
            teams = fits[0]
        else:
            teams = DENSE_TEAMS
            free = shared_memory // 4 - HEAD - self.weights
            if free < 0:
                return Unmapped("its parameters do not fit a block's shared memory")
            inside = free // self.row if free >= LEAST_ROWS * self.row else 0
            together = ROWS_TOGETHER
        numbers = {
            "ROW": self.row,
            "WEIGHTS": self.weights,
            "SCRATCH": self.scratch,
            "FEATURES": self.features,
            "OUTPUTS": outputs,
            "Z": z,
            "GZ": gz,
            "SHARED_WORDS": self.halves,
            "WORDS": self.words,
        }
        lines = [f"  static constexpr int {name} = {number};" for name, number in numbers.items()]
        lines += [
            f"  static constexpr bool LOGISTIC = {_text(logistic)};",
            f"  static constexpr bool SHARED_ARENA = {_text(inside > 0)};",
            "  typedef Chain<" + ",\n                ".join(types) + "> Layers;",
        ]
        reals = [
            f"struct Real{place} {{ static constexpr float value = {value!r}f; }};"
            for value, place in self.reals.items()
        ]
        layers = "\n".join(["#pragma once", *reals, "", "struct Network {", *lines, "};", ""])
        return DeviceNetwork(
            sizes=sizes_text(teams, together),
            layers=layers,
            teams=teams,
            outputs=outputs,
            weights=self.weights,
            scratch=self.scratch,
            row=self.row,
            inside=inside,
            drawing=self.drawing,
            shared_words=self.halves > 0,
            own_words=self.own_words,
        )

    def _with_gradients(self, outputs: int) -> tuple[list[str], int]:
        """The layers' types, and where the loss's gradient is."""
        lowest = next(i for i, layer in enumerate(self.layers) if layer.parameters)
        at = first = self._place(outputs)
        types = []
        for i, layer in reversed(list(enumerate(self.layers))):
            if i < lowest:
                types.append(layer.text(str(NOWHERE), False))
            elif layer.moves:
                below = NOWHERE if i == lowest else self._place(layer.reads)
                types.append(layer.text(f"{below}, {at}", i == lowest))
                at = below
            else:
                types.append(layer.text(str(at), False))
        return types[::-1], first

    def _add(
        self, text: str | Callable[[str, bool], str], *, parameters: bool = False, reads: int = 0
    ) -> None:
        fixed = text if callable(text) else lambda gradients, lowest: text
        self.layers.append(_Layer(fixed, parameters, reads > 0, reads))

    def _written(self, width: int) -> tuple[int, int]:
        """Places of what a layer reads and of `width` numbers that it writes elsewhere."""
        read, self.at, self.width, self.kept = self.at, self._place(width), width, False
        return read, self.at

    def _in_place(self, width: int, reads_input: bool) -> tuple[int, int]:
        if self.kept or reads_input or self.at < 0:
            return self._written(width)
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


def sizes_text(teams: int, together: int) -> str:
    """The text of sizes.h. together: rows that a team computes at once."""
    numbers = {"MOST_TEAMS": teams, "LEAST_BLOCKS": 1, "ROWS_TOGETHER": together}
    lines = [f"#define {name} {number}" for name, number in numbers.items()]
    return "\n".join(["#pragma once", *lines, ""])


def _fours(numbers: int) -> int:
    return -(-numbers // 4) * 4


def _text(flag: bool) -> str:
    return "true" if flag else "false"


def _together(outputs: int, positions: int, area: int) -> int:
    """Channels that a lane computes at once: so many that few lanes stay idle."""

    def key(together: int) -> tuple[float, int]:
        items = positions * outputs // together
        return items / (-(-items // LANES) * LANES), together

    fitting = [n for n in range(1, outputs + 1) if outputs % n == 0 and n * area <= REGISTERS]
    return max(fitting, key=key)
