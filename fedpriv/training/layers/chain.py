"""Networks that are chains of supported layers, or that add what several chains compute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedpriv.training.layers.masked_dropout import MaskedDropout
from fedpriv.training.layers.own_gradients import NUMBERS_AT_ONCE, Pass, tracked
from fedpriv.training.layers.parts import Recurrence, SelfAttention
from fedpriv.training.layers.supported import LayerSupport, support_of
from fedpriv.training.layers.traced import Call, UnmappedError
from fedpriv.training.modes import in_mode

INSIDE = {SelfAttention: 8, Recurrence: 16}
"""Numbers that autograd keeps inside a layer, for each one that it writes."""


@dataclass(frozen=True)
class ChainLayer:
    """A layer in its place.

    name: in the network.
    support: how the trainers compute it.
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
    def batch_key(self) -> Hashable:
        """Equal for layers that compute the same from equal parameters."""
        settings = {
            key: value
            for key, value in vars(self.module).items()
            if not key.startswith("_") and key != "training"
        }
        unbiased = getattr(self.module, "bias", None) is None
        return type(self.module), *settings.items(), unbiased, self.reads, self.offset

    @property
    def alike(self) -> bool:
        """Whether a record's gradient is known to have the same bits in a batch of any length. The
        kernels of steps were not tried on as many processors and lengths as those of rows."""
        rows = type(self.module) is nn.Linear and len(self.read) == 2
        return not self.sizes or rows or type(self.module) in (nn.Conv2d, nn.GroupNorm)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers in training."""
        return self.support.dropout is not None and bool(self.module.p)

    @property
    def idle(self) -> bool:
        """Whether it does nothing in training."""
        unused = self.support.dropout is not None and not self.draws
        return unused or type(self.module) is nn.Identity

    @cached_property
    def sizes(self) -> list[int]:
        """Of its parameters."""
        return [own.numel() for own in self.module.parameters()]

    @property
    def numbers(self) -> int:
        """How many numbers a pass with per-record gradients keeps for one record."""
        kind = type(self.module)
        vectors = kind is nn.Linear and len(self.read) == 2
        own = 0 if vectors or kind is nn.Embedding else sum(self.sizes)
        pairs = self.read.numel() ** 2 if kind is nn.Embedding else 0
        inside = INSIDE.get(kind, 0) * self.written.numel()
        return self.read.numel() + self.written.numel() + own + pairs + inside

    def run(self, theta: Tensor, *reads: Tensor) -> Tensor:
        """What it computes in training with its part of the parameters `theta` (d,)."""
        pieces = torch.split(theta[self.offset : self.offset + sum(self.sizes)], self.sizes)
        named = {
            name: piece.view(own.shape)
            for (name, own), piece in zip(self.module.named_parameters(), pieces)
        }
        with in_mode(self.module, train=True):
            found: Tensor = functional_call(self.module, named, reads)
        return found


@dataclass(frozen=True)
class LayerChain:
    """The layers of a network in the order of their calls.

    batch_key: equal for networks that compute the same from equal parameters.
    traced: whether it is the trace of a network in training mode; in evaluation the network may
        compute something else.
    """

    layers: tuple[ChainLayer, ...]
    batch_key: Hashable
    traced: bool = False

    @cached_property
    def draws(self) -> bool:
        """Whether layers draw random numbers."""
        return any(layer.draws for layer in self.layers)

    @cached_property
    def straight(self) -> bool:
        """Whether each layer reads what the one before computes, and the parameters are in the
        order of the layers."""
        own = [layer for layer in self.layers if layer.sizes]
        ordered = all(one.offset < other.offset for one, other in pairwise(own))
        return ordered and all(layer.reads == (i - 1,) for i, layer in enumerate(self.layers))

    @cached_property
    def residual(self) -> bool:
        """Whether each layer reads what the one before computes, and sums what any earlier one
        does."""
        return all(i - 1 in layer.reads for i, layer in enumerate(self.layers))

    @cached_property
    def numbers(self) -> int:
        """How many numbers forward and backward passes with sums of clipped gradients keep for each
        record."""
        return sum(layer.numbers for layer in self.layers)

    @cached_property
    def has_passes(self) -> bool:
        """Whether per-record gradients of all layers with parameters are supported."""
        return all(not layer.sizes or layer.support.gradients for layer in self.layers)

    @cached_property
    def alike(self) -> bool:
        """Whether a record's gradient is known to have the same bits in a batch of any length."""
        return all(layer.alike for layer in self.layers)

    @cached_property
    def in_place(self) -> bool:
        """Whether layers overwrite what they read, which per-record gradients need."""
        return any(getattr(layer.module, "inplace", False) for layer in self.layers)

    @cached_property
    def stackable(self) -> bool:
        """Whether `forward` takes several networks: only linear layers on vectors have parameters,
        and nothing is drawn."""
        alone = self.on_vectors and not self.draws and not self.in_place
        return alone and self.straight

    @cached_property
    def on_vectors(self) -> bool:
        """Whether only linear layers on vectors have parameters."""
        owners = {(type(layer.module), len(layer.read)) for layer in self.layers if layer.sizes}
        return owners == {(nn.Linear, 2)}

    @cached_property
    def size(self) -> int:
        """How many parameters there are."""
        return sum(sum(layer.sizes) for layer in self.layers)

    def run(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs in training for records x (b, ...) at the parameters theta (d,)."""
        values = [x]
        for layer in self.layers:
            values.append(layer.run(theta, *(values[place + 1] for place in layer.reads)))
        return values[-1]

    def forward(
        self, thetas: Tensor, x: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[list[Pass], Tensor]:
        """The pass of each layer with parameters, in the order of the parameters, and the outputs
        (k, b, c).

        thetas: (k, d).
        x: (k, b, ...); k is 1 unless the chain is stackable.
        masks: the factors of `MaskedDropout` layers, (b, ...) by the names of buffers.
        """
        passes: list[tuple[int, Pass]] = []
        values = [x.flatten(0, 1)]
        for layer in self.layers:
            h, *others = (values[place + 1] for place in layer.reads)
            if isinstance(layer.module, MaskedDropout):
                values.append(h * masks[f"{layer.name}.mask"])
            elif layer.support.gradients is not None and layer.sizes:
                own = layer.support.gradients(layer.module, self._parameters(layer, thetas), h)
                tracked(own.written)
                passes.append((layer.offset, own))
                values.append(own.rows)
            elif layer.support.elementwise:
                values.append(_in_whole_vectors(layer.module, h))
            else:
                values.append(layer.module(h, *others))
        ordered = [own for _, own in sorted(passes, key=lambda found: found[0])]
        return ordered, values[-1].view(*x.shape[:2], -1)

    def _parameters(self, layer: ChainLayer, thetas: Tensor) -> Sequence[Tensor]:
        end = layer.offset + sum(layer.sizes)
        return torch.split(thetas[:, layer.offset : end], layer.sizes, 1)


def _in_whole_vectors(module: nn.Module, h: Tensor) -> Tensor:
    """What an elementwise layer computes. Numbers that are left over after whole vectors would be
    computed by other code, so zeros are added to them: a record then has the same bits in a batch
    of any length."""
    more = -h.numel() % NUMBERS_AT_ONCE
    flat = functional.pad(h.flatten(), (0, more))
    found: Tensor = module(flat)[: h.numel()].view(h.shape)
    return found


def chain_of(
    model: nn.Module,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    calls: Sequence[Call],
    *,
    traced: bool,
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
    key = (shape, *(layer.batch_key for layer in layers))
    return LayerChain(tuple(layers), key, traced)
