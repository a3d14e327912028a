"""The layers of a captured network, read from its graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from fedpriv.training.graph import Graph, device_of
from fedpriv.training.layers.parts import (
    AddedParameter,
    LastStep,
    MeanOfSteps,
    Recurrence,
    Reshape,
    SelfAttention,
    Sum,
)
from fedpriv.training.modes import in_mode, kept_generators

BATCHES = 2, 3
"""Numbers of records of the passes that show which dimension is that of the records."""


RESHAPES = {"view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous"}
ADDITIONS = {"add"}


def _relu(inplace: bool = False) -> nn.Module:
    return nn.ReLU()


def _silu(inplace: bool = False) -> nn.Module:
    return nn.SiLU()


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout(p) if training else nn.Identity()


def _dropout2d(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    return nn.Dropout2d(p) if training else nn.Identity()


def _max_pool(
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> nn.Module:
    return nn.MaxPool2d(kernel_size, stride, padding, dilation, return_indices, ceil_mode)


OPERATIONS: Mapping[str, Callable[..., nn.Module]] = {
    "relu": _relu,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
    "silu": _silu,
    "dropout": _dropout,
    "dropout2d": _dropout2d,
    "max_pool2d": _max_pool,
    "_max_pool2d": _max_pool,
    "boolean_dispatch": _max_pool,
    "avg_pool2d": nn.AvgPool2d,
}
"""Makers of layers by the names of functions and methods. Their arguments are those of the
function after the tensor."""


_OWNERS = operator, torch, functional, torch._C._nn
_NAMES = {
    *OPERATIONS,
    *RESHAPES,
    *ADDITIONS,
    "mean",
    "getitem",
    "max_pool2d",
    "mul",
    "floordiv",
    "sub",
}
FUNCTIONS = {
    getattr,
    *(own for owner in _OWNERS for name in _NAMES if callable(own := getattr(owner, name, None))),
}
"""Functions whose calls are read; others may have the same names."""


class UnmappedError(Exception):
    """Why a network is not mapped to layers."""


@dataclass(frozen=True)
class Call:
    """A layer, and what it reads.

    name: of the layer in the network, or of the operation in its trace.
    reads: positions of calls; -1 for the records.
    """

    name: str
    module: nn.Module
    reads: tuple[int, ...]


class _Shapes(fx.Interpreter):
    """Runs a graph and notes the shape of every node's tensor."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__(fx.GraphModule(model, graph))
        self.shapes: dict[str, torch.Size | None] = {}

    def run_node(self, n: fx.Node) -> Any:
        found = super().run_node(n)
        self.shapes[n.name] = found.shape if isinstance(found, Tensor) else None
        return found


class Reader:
    """Reads a graph node by node.

    calls: the layers so far.
    """

    def __init__(self, model: Graph, records: Callable[[int], Tensor]) -> None:
        self.model = model
        self.graph = model.code.graph
        self.calls: list[Call] = []
        self.positions: dict[fx.Node, int] = {}
        self.returned: dict[fx.Node, int] = {}  # tuples of layers
        self.pairs: dict[fx.Node, int] = {}  # (h, c) of an LSTM
        self.states: dict[fx.Node, int] = {}  # last states (1, b, features)
        found = []
        for count in BATCHES:
            shapes = _Shapes(model, self.graph)
            shapes.run(records(count))
            found.append(shapes.shapes)
        self.shapes = found

    def read(self) -> list[Call]:
        """All calls; the last one computes the outputs. Raises UnmappedError."""
        for node in self.graph.nodes:
            match node.op:
                case "placeholder":
                    if self.positions:
                        raise UnmappedError("its forward pass takes more than the records")
                    self.positions[node] = -1
                case "output":
                    return self._ending(node.args[0])
                case "call_module":
                    self._module(node)
                case "call_function" | "call_method":
                    self._operation(node)
        raise UnmappedError("its forward pass returns nothing")

    def _ending(self, node: Any) -> list[Call]:
        place = self.positions.get(node) if isinstance(node, fx.Node) else None
        if place is None or place < 0:
            raise UnmappedError("its outputs are no single tensor of layers")
        return self.calls[: place + 1]

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of one record's tensor. Raises UnmappedError where records are mixed."""
        first, second = (shapes.get(node.name) for shapes in self.shapes)
        alike = first is not None and second is not None and first[1:] == second[1:]
        if not alike or first is None or second is None or (first[0], second[0]) != BATCHES:
            raise UnmappedError(f"{node.name} is no tensor with a row for each record")
        return tuple(first[1:])

    def place(self, node: Any) -> int:
        """Where the tensor that `node` stands for is computed."""
        if not isinstance(node, fx.Node) or node not in self.positions:
            raise UnmappedError(f"{node} is no tensor that a layer computes")
        return self.positions[node]

    def add(self, node: fx.Node, name: str, module: nn.Module, *reads: int) -> None:
        """Note a call, whose result `node` stands for."""
        self.positions[node] = self._append(name, module, *reads)

    def _module(self, node: fx.Node) -> None:
        name = str(node.target)
        module = self.model.get_submodule(name)
        kind = type(module)
        arguments = {key for key, value in node.kwargs.items() if value}
        if kind is nn.MultiheadAttention:
            if len(node.args) != 3 or len(set(node.args)) > 1 or arguments - {"need_weights"}:
                raise UnmappedError(f"{name} is no attention of a sequence to itself, unmasked")
        elif len(node.args) != 1 or arguments:
            raise UnmappedError(f"{name} reads more than one tensor")
        x = self.place(node.args[0])
        if kind in (nn.LSTM, nn.GRU, nn.MultiheadAttention):
            self.returned[node] = self._append(name, _first_result(module), x)
        else:
            self.add(node, name, module, x)

    def _append(self, name: str, module: nn.Module, *reads: int) -> int:
        """Note a call; returns its position."""
        self.calls.append(Call(name, module, reads))
        return len(self.calls) - 1

    def _operation(self, node: fx.Node) -> None:
        target = node.target
        name = _name(node)
        if node.op == "call_function" and target not in FUNCTIONS:
            raise UnmappedError(f"the function {name} is not in the table of layers")
        if target is operator.getitem:
            self._item(node)
        elif all(shapes.get(node.name) is None for shapes in self.shapes):
            pass  # sizes
        elif name in ADDITIONS:
            self._sum(node)
        elif not isinstance(source := node.args[0] if node.args else None, fx.Node):
            raise UnmappedError(f"{node.name} reads no tensor first")
        elif name == "squeeze" and source in self.states:
            self.add(node, node.name, LastStep(), self.states[source])
        elif name in RESHAPES:
            shape = _reshaped(self.shape(source), self.shape(node))
            self.add(node, node.name, shape, self.place(source))
        elif name == "mean":
            self._mean(node)
        elif (maker := OPERATIONS.get(name)) is not None:
            module = _made(maker, name, node)
            self.add(node, node.name, module, self.place(source))
        else:
            raise UnmappedError(f"the operation {name} is not in the table of layers")

    def _item(self, node: fx.Node) -> None:
        source, index = node.args
        if not isinstance(source, fx.Node):
            return
        if (place := self.returned.get(source)) is not None:
            if index == 0:
                self.positions[node] = place
            elif isinstance(module := self.calls[place].module, Recurrence):
                own = self.states if isinstance(module.cell, nn.GRU) else self.pairs
                own[node] = place
        elif source in self.pairs:
            if index == 0:
                self.states[node] = self.pairs[source]
        elif source in self.states:
            if index in (0, -1):
                self.add(node, node.name, LastStep(), self.states[source])
        elif self.shapes[0].get(source.name) is not None:
            if index != (slice(None, None, None), -1) or len(self.shape(source)) != 2:
                raise UnmappedError(f"{node.name} takes a part of a tensor")
            self.add(node, node.name, LastStep(), self.place(source))

    def _sum(self, node: fx.Node) -> None:
        one, other = node.args if len(node.args) == 2 and not node.kwargs else (None, None)
        for x, own in ((one, other), (other, one)):
            if isinstance(own, fx.Node) and own.op == "get_attr" and isinstance(x, fx.Node):
                parameter = _attribute(self.model, str(own.target))
                if isinstance(parameter, nn.Parameter) and self.shape(x) == self.shape(node):
                    name = str(own.target)
                    return self.add(node, name, AddedParameter(parameter), self.place(x))
        if not isinstance(one, fx.Node) or not isinstance(other, fx.Node):
            raise UnmappedError(f"{node.name} adds something else than two tensors of layers")
        if self.shape(one) != self.shape(other):
            raise UnmappedError(f"{node.name} adds tensors of different shapes")
        return self.add(node, node.name, Sum(), self.place(one), self.place(other))

    def _mean(self, node: fx.Node) -> None:
        source, *args = node.args
        assert isinstance(source, fx.Node)
        dim = args[0] if len(args) == 1 else node.kwargs.get("dim")
        known = set(node.kwargs) <= {"dim"} and len(args) <= 1
        if not known or dim not in (1, -2, (1,), [1], (-2,), [-2]) or len(self.shape(source)) != 2:
            raise UnmappedError(f"{node.name} is no mean over the steps of sequences")
        self.add(node, node.name, MeanOfSteps(), self.place(source))


def _name(node: fx.Node) -> str:
    """Of the function or method that it calls."""
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _first_result(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.RNNBase):
        return Recurrence(module)
    assert isinstance(module, nn.MultiheadAttention)
    return SelfAttention(module)


def _attribute(model: nn.Module, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(model.get_submodule(owner), last)


def _reshaped(before: tuple[int, ...], after: tuple[int, ...]) -> nn.Module:
    if before == after:
        return nn.Identity()
    return nn.Flatten() if len(after) == 1 else Reshape(after)


def _made(maker: Callable[..., nn.Module], name: str, node: fx.Node) -> nn.Module:
    try:
        return maker(*node.args[1:], **node.kwargs)
    except TypeError as error:
        raise UnmappedError(f"{name} is called with arguments that no layer has") from error


def read_calls(network: Graph, shape: tuple[int, ...], dtype: torch.dtype) -> list[Call]:
    """The calls that compute `network` on records of `shape`; the last one computes the outputs.
    Raises UnmappedError."""

    def zeros(count: int) -> Tensor:
        return torch.zeros((count, *shape), dtype=dtype, device=device_of(network))

    with torch.no_grad(), in_mode(network, train=True), kept_generators(device_of(network)):
        return Reader(network, zeros).read()
