"""A network captured once, as a graph of calls of torch.

The graph is what trains, what is evaluated and what the compiled trainer reads. The network's own
Python does not run again, so that nothing in it can remember a user, count passes or look at who
else is there.

>>> network = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
>>> captured(network, (4,), torch.float32)(torch.zeros(5, 4)).shape
torch.Size([5, 2])

A network that cannot be captured trains as it is, each user on a fresh copy. Its forward pass is
then taken for a function of its parameters, its inputs and torch's generators.
"""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.func import grad, vmap
from torch.nn import functional

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.masked_dropout import MaskedDropout
from fedpriv.training.modes import in_mode, kept_generators, seed_generators
from fedpriv.training.per_network import once_per_network
from fedpriv.training.vectors import backward, call, taken_gradient

HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"
OWN_LAYERS = L2Projection, MaskedDropout
DROPOUTS: dict[object, type[nn.Module]] = {
    functional.dropout: nn.Dropout,
    functional.dropout1d: nn.Dropout1d,
    functional.dropout2d: nn.Dropout2d,
    functional.dropout3d: nn.Dropout3d,
}
"""Functions that become layers of the graph, which know whether they are in training."""
IN_PLACE: dict[object, Callable[..., Any]] = {
    operator.iadd: operator.add,
    operator.isub: operator.sub,
    operator.imul: operator.mul,
    operator.itruediv: operator.truediv,
}
BATCHES = 2, 3
"""Numbers of records of the inputs at which the graph and the network are compared."""
TOLERANCE = 1e-4
"""Largest relative difference of their outputs and gradients."""


@dataclass(frozen=True)
class Uncaptured:
    """A network without a graph.

    reason: why, as the end of a sentence.
    """

    reason: str


class _UncapturedError(Exception):
    """Why a network is not captured."""


class _Code:
    """A graph and the function that it is. Copies of a network share it.

    graph: of torch.fx.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        code = graph.python_code(root_module="self")
        names = dict(code.globals)
        exec(code.src, names)  # written by torch.fx
        self.run: Callable[[nn.Module, Tensor], Tensor] = names["forward"]

    def __deepcopy__(self, memo: object) -> _Code:
        return self


class Graph(nn.Module):
    """A captured network, with the network's parameters and buffers in their order.

    code: the graph, whose nodes name layers and parameters of this module.
    """

    def __init__(self, root: nn.Module, graph: fx.Graph) -> None:
        super().__init__()
        self._parameters.update(root._parameters)
        self._buffers.update(root._buffers)
        self._modules.update(root._modules)
        self.code = _Code(graph)

    def forward(self, x: Tensor) -> Tensor:
        return self.code.run(self, x)


@once_per_network
def _captured(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Graph | Uncaptured:
    try:
        return _capture(model, shape, dtype, device)
    except _UncapturedError as error:
        return Uncaptured(str(error))


def captured(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Graph | Uncaptured:
    """The graph of a network on records of `shape`, or why there is none. Computed once for a
    network and its device; `model` stays as it is."""
    return model if isinstance(model, Graph) else _captured(model, shape, dtype, device_of(model))


def device_of(model: nn.Module) -> torch.device:
    """Where its parameters are."""
    return next((own.device for own in model.parameters()), torch.device("cpu"))


def fresh(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """A copy of a network's graph, or of the network itself where there is none."""
    found = captured(model, shape, dtype)
    return copy.deepcopy(model if isinstance(found, Uncaptured) else found)


def _capture(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Graph:
    for part in model.modules():
        if "forward" in vars(part) or any(getattr(part, hooks) for hooks in HOOKS):
            raise _UncapturedError("it has hooks, or a forward pass of a single layer's own")
    root = copy.deepcopy(model)
    if _is_layer(root):
        root = nn.Sequential(root)
    root.train()
    names = [name for name, _ in root.named_parameters()]
    with kept_generators(device):
        seed_generators(device, 0)
        before = torch.get_rng_state()
        graph = _trace(root)
        if not torch.equal(before, torch.get_rng_state()):
            raise _UncapturedError("it draws random numbers outside torch's layers")
    if [name for name, _ in root.named_parameters()] != names:
        raise _UncapturedError("its first pass makes parameters")
    _overwrite_nothing(root, graph)
    _layers_for_dropout(root, graph)
    called = {
        id(root.get_submodule(str(node.target))) for node in graph.nodes if node.op == "call_module"
    }
    found = Graph(_without_code(root, called, {}), graph)
    _keep_constants(found, root, graph)
    own, tried, records = copy.deepcopy(model), copy.deepcopy(found), inputs(found, shape, dtype)
    if far := difference(own, tried, records):
        raise _UncapturedError(far)
    if difference(tried, _Apart(tried), records, modes=(False,)):
        raise _UncapturedError("a record's output depends on the other records of its batch")
    return found


class _Apart(nn.Module):
    """A network that computes records one by one."""

    def __init__(self, own: nn.Module) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.own(one[None]) for one in x])


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return _is_layer(m)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Encoders without a mask become the layers that they are made of."""
        parts = ENCODERS.get(type(m)) if len(args) == 1 and not kwargs else None
        return super().call_module(m, forward, args, kwargs) if parts is None else parts(m, *args)


def _encoder(own: nn.Module, x: Any) -> Any:
    assert isinstance(own, nn.TransformerEncoder)
    for layer in own.layers:
        x = layer(x)
    return x if own.norm is None else own.norm(x)


def _encoder_layer(own: nn.Module, x: Any) -> Any:
    """As in Vaswani et al., 2017, or with norms first."""
    assert isinstance(own, nn.TransformerEncoderLayer)

    def attended(h: Any) -> Any:
        return own.dropout1(own.self_attn(h, h, h, need_weights=False)[0])

    def forwarded(h: Any) -> Any:
        return own.dropout2(own.linear2(own.dropout(own.activation(own.linear1(h)))))

    if own.norm_first:
        x = x + attended(own.norm1(x))
        return x + forwarded(own.norm2(x))
    x = own.norm1(x + attended(x))
    return own.norm2(x + forwarded(x))


ENCODERS: dict[type[nn.Module], Callable[[nn.Module, Any], Any]] = {
    nn.TransformerEncoder: _encoder,
    nn.TransformerEncoderLayer: _encoder_layer,
}


def _is_layer(module: nn.Module) -> bool:
    """Whether it is a layer of torch itself, or of ours: a node of the graph."""
    kind = type(module)
    torchs = kind.__module__.startswith("torch.nn.modules.") and kind is not nn.Sequential
    return torchs or kind in OWN_LAYERS


def _trace(root: nn.Module) -> fx.Graph:
    try:
        one, other = (_Tracer().trace(root) for _ in range(2))
    except Exception as error:  # of the network's own code
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _UncapturedError(f"torch.fx cannot trace its forward pass ({line[:90]})") from error
    if str(one) != str(other):
        raise _UncapturedError("two traces of its forward pass differ")
    if sum(node.op == "placeholder" for node in one.nodes) != 1:
        raise _UncapturedError("its forward pass takes more than the records")
    return one


def _overwrite_nothing(root: nn.Module, graph: fx.Graph) -> None:
    """Let operations write new tensors in place of those that they read."""
    for node in graph.nodes:
        if node.op == "call_module":
            layer = root.get_submodule(str(node.target))
            if getattr(layer, "inplace", False):
                layer.inplace = False  # type: ignore[assignment]
        elif node.kwargs.get("inplace"):
            node.kwargs = {**node.kwargs, "inplace": False}
        elif node.target in IN_PLACE:
            node.target = IN_PLACE[node.target]
        elif node.op in ("call_method", "call_function"):
            name = getattr(node.target, "__name__", node.target)
            owners = (Tensor,) if node.op == "call_method" else (torch, functional)
            known = [getattr(own, name[:-1]) for own in owners if hasattr(own, name[:-1])]
            if name.endswith("_") and not name.endswith("__") and known:
                node.target = name[:-1] if node.op == "call_method" else known[0]


def _layers_for_dropout(root: nn.Module, graph: fx.Graph) -> None:
    """Let layers of `root` draw what functions draw in training."""
    for node in list(graph.nodes):
        kind = DROPOUTS.get(node.target)
        if node.op == "call_function" and kind is not None and node.kwargs.get("training"):
            p = node.kwargs.get("p", 0.5)
            root.add_module(node.name, kind(p).train())
            with graph.inserting_before(node):
                layer = graph.call_module(node.name, (node.args[0],))
            node.replace_all_uses_with(layer)
            graph.erase_node(node)


def _without_code(module: nn.Module, called: set[int], known: dict[int, nn.Module]) -> nn.Module:
    """The same parameters, buffers and layers below modules without code, but for the layers that
    the graph calls."""
    if id(module) in called:
        return module
    if id(module) not in known:
        own = known[id(module)] = nn.Module()
        own._parameters.update(module._parameters)
        own._buffers.update(module._buffers)
        for name, child in module._modules.items():
            own._modules[name] = child and _without_code(child, called, known)
    return known[id(module)]


def _keep_constants(graph: Graph, root: nn.Module, calls: fx.Graph) -> None:
    """Tensors that are no parameters, such as tables that the forward pass computes, become buffers
    that no state has."""
    for node in calls.nodes:
        if node.op == "get_attr":
            owner, _, name = str(node.target).rpartition(".")
            place = graph.get_submodule(owner)
            if not hasattr(place, name):
                value = getattr(root.get_submodule(owner), name)
                place.register_buffer(name, value.detach(), persistent=False)


def inputs(graph: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    """Made-up records; words are those that every embedding knows."""
    generator = torch.Generator().manual_seed(1)
    words = [part.num_embeddings for part in graph.modules() if isinstance(part, nn.Embedding)]
    found = []
    for count in BATCHES:
        x = torch.randn((count, *shape), generator=generator)
        if not dtype.is_floating_point:
            x = (x.abs() * 1000) % min(words, default=2)
        found.append(x.to(device_of(graph), dtype))
    return found


@once_per_network
def vmaps(
    graph: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, randomness: str = "different"
) -> bool:
    """Whether torch.func.vmap computes its gradients: it does not know every recurrent layer, nor
    operations that overwrite what several records share.

    randomness: "error" for networks that draw no random numbers.
    """
    own = copy.deepcopy(graph).train()
    parameters = {name: leaf.detach() for name, leaf in own.named_parameters()}
    x = torch.zeros((2, 1, *shape), dtype=dtype, device=device_of(own))

    def outputs_sum(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return call(own, parameters, x).sum()

    with kept_generators(x.device), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of operations that vmap computes slowly
        try:
            vmap(grad(outputs_sum), (None, 0), randomness=randomness)(parameters, x)
        except RuntimeError:
            return False
    return True


def difference(
    one: nn.Module,
    other: nn.Module,
    inputs: Sequence[Tensor],
    modes: Sequence[bool] = (True, False),
) -> str | None:
    """What differs between two networks; None: nothing.

    Each computes all inputs one after the other, so a network that remembers the first differs.

    modes: in training, and in evaluation.
    """
    try:
        found = [list(_passes(own, inputs, modes)) for own in (one, other)]
    except Exception as error:  # of the network's own code
        return f"it does not run on made-up records ({type(error).__name__})"
    for mine, theirs in zip(*found):
        for name, a, b in zip(("outputs", "gradients"), mine, theirs):
            if not _close(a, b):
                return f"its graph has other {name}"
    return None


def _passes(
    own: nn.Module, inputs: Sequence[Tensor], modes: Sequence[bool]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs and gradients of each pass."""
    for train in modes:
        for place, x in enumerate(inputs):
            with kept_generators(x.device), torch.enable_grad(), in_mode(own, train):
                seed_generators(x.device, place)
                outputs = own(x.clone())
                factors = torch.linspace(-1, 1, outputs.numel(), device=x.device)
                for leaf in own.parameters():
                    leaf.grad = None
                backward((outputs.flatten() * factors).sum())
            gradients = [taken_gradient(leaf).flatten() for leaf in own.parameters()]
            yield outputs.detach(), torch.cat(gradients)


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    far = float((one - other).nan_to_num().norm())
    return far <= TOLERANCE * (1e-3 + float(one.nan_to_num().norm()))
