"""A captured network as plain values, and the network that they describe.

Layers and functions are names in the tables of this page, arguments are numbers and short texts, so
the values of a stranger run no code. A network is accepted once its shapes are computed without
memory (torch's device `meta`), record by record within limits.
"""

from __future__ import annotations

import copy
import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.graph import Graph, inputs

LAYERS: dict[str, type[nn.Module]] = {
    **{
        name: getattr(nn, name)
        for name in (
            *("Linear", "Conv1d", "Conv2d", "Embedding", "GRU", "LSTM", "MultiheadAttention"),
            *("GroupNorm", "LayerNorm", "BatchNorm1d", "BatchNorm2d"),
            *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "ELU", "SELU", "GELU", "SiLU", "Softplus"),
            *("Tanh", "Sigmoid", "Hardtanh", "Softmax", "LogSoftmax", "Identity"),
            *("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Flatten", "Unflatten"),
            *("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"),
            *("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"),
        )
    },
    "L2Projection": L2Projection,
}
"""Layers that a bundle may name."""
OF_RECURRENT = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "bidirectional")
"""Arguments of recurrent layers, whose constructors name none. Their dropout acts in training."""
UNSAVED = ("inplace", "device", "dtype", "p", "dropout", "add_bias_kv", "add_zero_attn")
"""Arguments that change no output, or that no saved layer has."""


def _shape(x: Tensor, name: str) -> torch.Size:
    """The attribute of a tensor that a graph may read."""
    if name != "shape" or not isinstance(x, Tensor):
        raise ValueError(f"an attribute {name!s:.40}; allowed: the shape of a tensor")
    return x.shape


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    """The operator for tensors, and for sizes; other numbers and lists can grow without end."""

    def checked(*operands: Any) -> Any:
        sizes = all(type(one) is int and abs(one) < 2**31 for one in operands)
        if not sizes and not any(isinstance(one, Tensor) for one in operands):
            raise ValueError("an operator without a tensor")
        return function(*operands)

    return checked


def _power(x: Tensor, exponent: Any) -> Tensor:
    return Tensor.pow(x, exponent)


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "neg", "matmul")
_NAMES = (
    *("relu", "tanh", "sigmoid", "gelu", "silu", "elu", "leaky_relu", "softplus", "softmax"),
    *("log_softmax", "exp", "log", "sqrt", "abs", "square", "clamp", "max_pool2d", "avg_pool2d"),
    *("adaptive_avg_pool2d", "add", "sub", "mul", "div", "matmul", "bmm", "cat", "stack", "mean"),
    *("sum", "amax", "flatten", "reshape", "squeeze", "unsqueeze", "transpose", "permute"),
)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    f"{owner.__name__}.{name}": getattr(owner, name)
    for owner in (torch, functional)
    for name in _NAMES
    if hasattr(owner, name)
} | {f"operator.{name}": getattr(operator, name) for name in (*_OPERATORS, "getitem", "pow")}
"""Functions that a bundle may name, as a graph calls them."""
CHECKED = {
    **FUNCTIONS,
    **{f"operator.{name}": _arithmetic(getattr(operator, name)) for name in _OPERATORS},
    "operator.pow": _power,
    "getattr": _shape,
}
METHODS = (*_NAMES, "view", "size", "contiguous", "pow", "norm", "clamp_min")
"""Methods of a tensor that a bundle may name."""
MOST_NODES = 10_000
MOST_NUMBERS = 2**22
"""Limit of the numbers of one record between two layers."""
MOST_RECURRENT = 100
BATCH = 2
"""Records of the pass that computes shapes."""


class UnsavedError(Exception):
    """Why a network cannot be saved."""


def save_network(
    graph: Graph, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A network as plain values, and its tensors by name.

    arrays: the trained parameters by name, in their order.
    shape: of one record, of type `dtype`.

    Raises UnsavedError for a network that cannot be saved, or that would compute something else.
    """
    own = copy.deepcopy(graph).cpu().eval()
    tensors = {name: buffer.numpy() for name, buffer in own.named_buffers()}
    for (name, leaf), array in zip(own.named_parameters(), arrays.values()):
        leaf.data = torch.from_numpy(array).reshape(leaf.shape)
        tensors[name] = leaf.detach().numpy()
    names = {id(leaf): name for name, leaf in (*own.named_parameters(), *own.named_buffers())}
    places: dict[fx.Node, int] = {}
    nodes = []
    for node in own.code.graph.nodes:
        nodes.append(_node(own, node, places, names))
        places[node] = len(places)
    tree = {"shape": list(shape), "dtype": str(dtype).removeprefix("torch."), "nodes": nodes}
    try:
        saved = SavedNetwork(nodes, tensors)
        saved.fill(tensors)
        _require_rows(saved, shape, dtype, "cpu")  # "meta" loads torch's compiler, in a second
        with torch.no_grad():
            same = all(torch.equal(saved(x), own(x)) for x in inputs(own, shape, dtype))
    except (RuntimeError, TypeError, ValueError, LookupError) as error:
        raise UnsavedError(" ".join(str(error).split())[:120]) from error
    if not same:
        raise UnsavedError("what is saved computes other outputs")
    return tree, tensors


def _node(
    graph: Graph, node: fx.Node, places: Mapping[fx.Node, int], names: Mapping[int, str]
) -> dict[str, Any]:
    target = str(node.target)
    given = {
        "args": [_encoded(one, places) for one in node.args],
        "kwargs": {name: _encoded(one, places) for name, one in node.kwargs.items()},
    }
    match node.op:
        case "placeholder":
            return {"op": "records"}
        case "get_attr":
            owner, _, name = target.rpartition(".")
            return {"op": "tensor", "name": names[id(getattr(graph.get_submodule(owner), name))]}
        case "call_module":
            return {"op": "layer", **_layer(graph.get_submodule(target), names), **given}
        case "call_method" if target in METHODS:
            return {"op": "method", "name": target, **given}
        case "call_function":
            if node.target is getattr:
                return {"op": "function", "name": "getattr", **given}
            for name, function in FUNCTIONS.items():
                if function is node.target:
                    return {"op": "function", "name": name, **given}
        case "output":
            return {"op": "output", **given}
    name = getattr(node.target, "__name__", target)
    raise UnsavedError(f"the operation {name}; allowed: {', '.join(_NAMES)}")


def _layer(layer: nn.Module, names: Mapping[int, str]) -> dict[str, Any]:
    kind = type(layer)
    if LAYERS.get(kind.__name__) is not kind:
        raise UnsavedError(f"the layer {kind.__name__}; allowed: {', '.join(LAYERS)}")
    recurrent = isinstance(layer, nn.RNNBase)
    arguments = OF_RECURRENT if recurrent else inspect.getfullargspec(kind.__init__).args[1:]
    values = {
        name: getattr(layer, name, getattr(layer, f"in_proj_{name}", None))
        for name in arguments
        if name not in UNSAVED and not name.startswith("_")
    }
    if "bias" in values:
        values["bias"] = values["bias"] is not None and values["bias"] is not False
    return {
        "kind": kind.__name__,
        "arguments": {name: _encoded(one, {}) for name, one in values.items()},
        "tensors": {name: names[id(own)] for name, own in _tensors(layer)},
    }


def _tensors(layer: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers of a layer by name."""
    parameters = layer.named_parameters(remove_duplicate=False)
    return [*parameters, *layer.named_buffers(remove_duplicate=False)]


def _encoded(value: Any, places: Mapping[fx.Node, int]) -> Any:
    """An argument as JSON has it."""
    if isinstance(value, fx.Node):
        return {"node": places[value]}
    if isinstance(value, tuple | list):
        found = [_encoded(one, places) for one in value]
        return {"tuple": found} if isinstance(value, tuple) else found
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"slice": [_encoded(one, places) for one in parts]}
    if value is ...:
        return {"ellipsis": []}
    if value is None or type(value) in (bool, int, float, str):
        return value
    raise UnsavedError(f"an argument {value!s:.40}; allowed: numbers, texts, slices and tuples")


class SavedNetwork(nn.Module):
    """The network that plain values describe, in evaluation mode. Its tensors have no memory until
    `fill`.

    nodes: as `save_network` returns them.
    """

    def __init__(self, nodes: list[dict[str, Any]], tensors: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        if not 0 < len(nodes) <= MOST_NODES:
            raise ValueError(f"{len(nodes)} nodes; from 1 to {MOST_NODES} are read")
        self.nodes = nodes
        self.layers = nn.ModuleDict()
        with torch.device("meta"):
            for place, node in enumerate(nodes):
                if node["op"] == "layer":
                    self.layers[str(place)] = _built(node)
                elif node["op"] == "tensor":
                    own = torch.from_numpy(tensors[node["name"]])
                    self.register_buffer(f"own{place}", own.to("meta"))
        self.eval()

    def fill(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Take the tensors of these names. Raises ValueError for one that does not fit."""
        for place, node in enumerate(self.nodes):
            if node["op"] == "tensor":
                setattr(self, f"own{place}", torch.from_numpy(tensors[node["name"]]))
            if node["op"] != "layer":
                continue
            layer = self.layers[str(place)]
            expected = _tensors(layer)
            if {name for name, _ in expected} != set(node["tensors"]):
                raise ValueError(f"{node['kind']} has other tensors")
            for name, before in expected:
                new = torch.from_numpy(tensors[node["tensors"][name]])
                if new.shape != before.shape or new.dtype != before.dtype:
                    raise ValueError(f"tensor {node['tensors'][name]:.60} has another shape")
                owner, _, last = name.rpartition(".")
                fixed = isinstance(before, nn.Parameter)
                own = nn.Parameter(new) if fixed else new  # gradients choose torch's kernels
                setattr(layer.get_submodule(owner), last, own)

    def values(self, x: Tensor) -> list[Any]:
        """What each node computes of records x (n, ...)."""
        found: list[Any] = []
        for place, node in enumerate(self.nodes):
            args = [_decoded(one, found) for one in node.get("args", [])]
            kwargs = {name: _decoded(one, found) for name, one in node.get("kwargs", {}).items()}
            match node["op"]:
                case "records":
                    found.append(x)
                case "tensor":
                    found.append(getattr(self, f"own{place}"))
                case "layer":
                    found.append(self.layers[str(place)](*args, **kwargs))
                case "method" if node["name"] in METHODS and isinstance(args[0], Tensor):
                    found.append(getattr(Tensor, node["name"])(*args, **kwargs))
                case "function":
                    found.append(CHECKED[node["name"]](*args, **kwargs))
                case "output":
                    found.append(args[0])
                case _:
                    raise ValueError(f"an operation {node['op']!s:.40} of {node.get('name')!s:.40}")
        return found

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.values(x)[-1]
        return outputs


def _built(node: Mapping[str, Any]) -> nn.Module:
    kind, arguments = LAYERS[node["kind"]], node["arguments"]
    values = {name: _decoded(one, []) for name, one in arguments.items()}
    if values.get("num_layers", 1) > MOST_RECURRENT:
        raise ValueError(f"more than {MOST_RECURRENT} recurrent layers in one")
    return kind(**values)


def _decoded(value: Any, found: list[Any]) -> Any:
    """The argument that `_encoded` wrote. Raises ValueError."""
    if isinstance(value, list):
        return [_decoded(one, found) for one in value]
    if isinstance(value, dict):
        [(kind, inner)] = value.items()
        if kind == "node" and type(inner) is int and 0 <= inner < len(found):
            return found[inner]
        if kind == "ellipsis":
            return ...
        if kind in ("tuple", "slice") and isinstance(inner, list):
            parts = [_decoded(one, found) for one in inner]
            return tuple(parts) if kind == "tuple" else slice(*parts)
        raise ValueError(f"an argument {value!s:.40}")
    if type(value) is int and abs(value) >= 2**31:
        raise ValueError(f"an argument {value!s:.40}")
    return value


def _size(value: Any) -> int:
    """How many numbers a node computes, or the largest size among them."""
    if isinstance(value, tuple | list):
        return max(map(_size, value), default=0)
    if isinstance(value, Tensor):
        return value.numel()
    return int(value or 0)


def load_network(tree: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> SavedNetwork:
    """The network of `save_network`. The values may be a stranger's. Raises ValueError, TypeError,
    LookupError, AttributeError or RuntimeError."""
    network = SavedNetwork(tree["nodes"], tensors)
    dtype = {"float32": torch.float32, "int64": torch.int64}[tree["dtype"]]
    _require_rows(network, tree["shape"], dtype, "meta")
    network.fill(tensors)
    return network


def _require_rows(
    network: SavedNetwork, shape: Sequence[int], dtype: torch.dtype, device: str
) -> None:
    """Raise ValueError if a record of this shape is too large in some layer, or has no row of
    outputs.

    device: where the network is; "meta": without memory.
    """
    if math.prod(shape) > MOST_NUMBERS or not all(type(one) is int and one > 0 for one in shape):
        raise ValueError(f"records of shape {shape!s:.60}")
    with torch.no_grad():
        found = network.values(torch.zeros((BATCH, *shape), dtype=dtype, device=device))
    if max(map(_size, found)) > BATCH * MOST_NUMBERS:
        raise ValueError(f"more than {MOST_NUMBERS} numbers of a record between two layers")
    if not isinstance(found[-1], Tensor) or found[-1].dim() != 2 or len(found[-1]) != BATCH:
        raise ValueError("its outputs are no row for each record")


def run_network(network: nn.Module, x: np.ndarray) -> np.ndarray:
    """The outputs (n, c) of records (n, ...)."""
    with torch.no_grad():
        return np.asarray(network(torch.from_numpy(x)).numpy())
