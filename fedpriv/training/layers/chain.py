"""Captured networks as lists of known layers, and why others are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedpriv.training.graph import Uncaptured, captured, difference, inputs
from fedpriv.training.layers.supported import LayerSupport, support_of
from fedpriv.training.layers.traced import Call, UnmappedError, read_calls
from fedpriv.training.masked_dropout import DROPOUTS
from fedpriv.training.modes import in_mode
from fedpriv.training.per_network import once_per_network


@dataclass(frozen=True)
class ChainLayer:
    """A layer in its place.

    name: in the network.
    support: what is known of its type.
    read: shape (1, ...) that it reads of one record.
    written: shape that it writes.
    reads: which layers' results it reads; -1: the records.
    offset: of its parameters in the network's flat vector.
    """

    name: str
    module: nn.Module
    support: LayerSupport
    read: torch.Size
    written: torch.Size
    reads: tuple[int, ...]
    offset: int

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers in training."""
        return type(self.module) in DROPOUTS and bool(self.module.p)

    @property
    def idle(self) -> bool:
        """Whether it does nothing in training."""
        unused = type(self.module) in DROPOUTS and not self.draws
        return unused or type(self.module) is nn.Identity

    @cached_property
    def sizes(self) -> list[int]:
        """Of its parameters."""
        return [own.numel() for own in self.module.parameters()]


@dataclass(frozen=True)
class LayerChain:
    """The layers of a network in the order of their calls."""

    layers: tuple[ChainLayer, ...]

    @cached_property
    def size(self) -> int:
        """How many parameters there are."""
        return sum(sum(layer.sizes) for layer in self.layers)

    def run(self, x: Tensor) -> Tensor:
        """What the layers compute from records (b, ...)."""
        values = [x]
        for layer in self.layers:
            values.append(layer.module(*(values[place + 1] for place in layer.reads)))
        return values[-1]


def chain_of(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, calls: Sequence[Call]
) -> LayerChain:
    """The chain of these calls. Raises UnmappedError for a layer that the table does not accept,
    and for parameters that are used twice or not at all."""
    offsets = {}
    d = 0
    for own in model.parameters():
        offsets[id(own)] = d
        d += own.numel()
    used = [id(own) for call in calls for own in call.module.parameters()]
    if not used or len(used) != len(set(used)) or set(used) != set(offsets):
        raise UnmappedError("a parameter is used twice or not at all")
    layers: list[ChainLayer] = []
    values = [next(model.parameters()).new_zeros((1, *shape))]
    if not dtype.is_floating_point:
        values[0] = values[0].to(dtype)
    with torch.no_grad(), in_mode(model, train=False):
        for call in calls:
            reads = [values[place + 1] for place in call.reads]
            support = support_of(call.module, reads[0].shape)
            if support is None:
                kind = type(call.module).__name__
                raise UnmappedError(f"layer {call.name} ({kind}) is not in the table as it is set")
            places = [offsets[id(each)] for each in call.module.parameters()]
            sizes = [each.numel() for each in call.module.parameters()]
            if places and places != [places[0] + sum(sizes[:i]) for i in range(len(sizes))]:
                raise UnmappedError(f"the parameters of {call.name} do not lie side by side")
            with in_mode(call.module, train=False):
                written = call.module(*reads)
            shapes = reads[0].shape, written.shape
            offset = places[0] if places else d
            layers.append(ChainLayer(call.name, call.module, support, *shapes, call.reads, offset))
            values.append(written)
    return LayerChain(tuple(layers))


@dataclass(frozen=True)
class Unmapped:
    """A network that no table of layers describes.

    reason: why, as the end of a sentence.
    """

    reason: str


class _AsNetwork(nn.Module):
    """A chain as a network, with the parameters of the one that it describes."""

    def __init__(self, network: nn.Module, chain: LayerChain) -> None:
        super().__init__()
        self.network = network
        self.chain = chain

    def forward(self, x: Tensor) -> Tensor:
        return self.chain.run(x)


@once_per_network
def mapped(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> LayerChain | Unmapped:
    """The chain of a network on records of `shape`, or why there is none. In training it has the
    outputs and gradients of the network's graph."""
    network = captured(model, shape, dtype)
    if isinstance(network, Uncaptured):
        return Unmapped(network.reason)
    try:
        calls = read_calls(network, shape, dtype)
        chain = chain_of(network, shape, dtype, calls)
        made_up = inputs(network, shape, dtype)
        found = difference(network, _AsNetwork(network, chain), made_up, modes=(True,))
    except UnmappedError as error:
        return Unmapped(str(error))
    return Unmapped(found) if found else chain
