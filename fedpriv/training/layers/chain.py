"""Networks that are chains of supported layers."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.masked_dropout import MaskedDropout
from fedpriv.training.layers.own_gradients import Pass
from fedpriv.training.layers.supported import LayerSupport, support_of, untouched
from fedpriv.training.modes import in_mode


@dataclass(frozen=True)
class ChainLayer:
    """A layer in its place.

    name: in the network.
    support: how the trainers compute it.
    read: shape (1, ...) that it reads of one record.
    written: shape that it writes.
    """

    name: str
    module: nn.Module
    support: LayerSupport
    read: torch.Size
    written: torch.Size

    @property
    def batch_key(self) -> Hashable:
        """Equal for layers that compute the same from equal parameters."""
        settings = {
            key: value
            for key, value in vars(self.module).items()
            if not key.startswith("_") and key != "training"
        }
        unbiased = getattr(self.module, "bias", None) is None
        return type(self.module), *settings.items(), unbiased

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
        own = 0 if type(self.module) is nn.Linear else sum(self.sizes)
        return self.read.numel() + self.written.numel() + own


@dataclass(frozen=True)
class LayerChain:
    """The layers of a network in the order of their calls.

    batch_key: equal for networks that compute the same from equal parameters.
    """

    layers: tuple[ChainLayer, ...]
    batch_key: Hashable

    @cached_property
    def draws(self) -> bool:
        """Whether layers draw random numbers."""
        return any(layer.draws for layer in self.layers)

    @cached_property
    def numbers(self) -> int:
        """How many numbers forward and backward passes with sums of clipped gradients keep for each
        record."""
        return sum(layer.numbers for layer in self.layers)

    @cached_property
    def in_place(self) -> bool:
        """Whether layers overwrite what they read, which per-record gradients need."""
        return any(getattr(layer.module, "inplace", False) for layer in self.layers)

    @cached_property
    def stackable(self) -> bool:
        """Whether `forward` takes several networks: only linear layers have parameters, and nothing
        is drawn."""
        owners = {type(layer.module) for layer in self.layers if layer.sizes}
        return owners == {nn.Linear} and not self.draws and not self.in_place

    def forward(
        self, thetas: Tensor, x: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[list[Pass], Tensor]:
        """The pass of each layer with parameters, and the outputs (k, b, c).

        thetas: (k, d).
        x: (k, b, ...); k is 1 unless the chain is stackable.
        masks: the factors of `MaskedDropout` layers, (b, ...) by the names of buffers.
        """
        passes: list[Pass] = []
        h = x.flatten(0, 1)
        start = 0
        for layer in self.layers:
            module = layer.module
            sizes = layer.sizes
            if isinstance(module, MaskedDropout):
                h = h * masks[f"{layer.name}.mask"]
            elif layer.support.gradients is None or not sizes:
                h = module(h)
            else:
                parameters = torch.split(thetas[:, start : start + sum(sizes)], sizes, 1)
                own = layer.support.gradients(module, parameters, h)
                if not own.written.requires_grad:
                    own.written.requires_grad_(torch.is_grad_enabled())
                passes.append(own)
                h = own.rows
                start = start + sum(sizes)
        return passes, h.view(*x.shape[:2], -1)


@cached_by_model
def layer_chain(model: nn.Module, shape: tuple[int, ...]) -> LayerChain | None:
    """The chain of a network on records of `shape`, or None if the network is anything else."""
    leaves = list(_leaves(model, ""))
    parameters = [id(own) for _, leaf in leaves for own in leaf.parameters()]
    if not parameters or parameters != [id(own) for own in model.parameters()]:
        return None  # nothing to train, or a layer or a parameter is used twice
    layers = []
    h = next(model.parameters()).new_zeros((1, *shape))
    with torch.no_grad(), in_mode(model, train=False):
        for name, leaf in leaves:
            support = support_of(leaf, h.shape)
            if support is None:
                return None
            read = h.shape
            h = leaf(h)
            layers.append(ChainLayer(name, leaf, support, read, h.shape))
    return LayerChain(tuple(layers), (shape, *(layer.batch_key for layer in layers)))


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The leaves of nested nn.Sequential in the order of their calls, also those called twice."""
    if type(module) is not nn.Sequential or not untouched(module):
        yield name, module
        return
    for child, own in module._modules.items():
        assert own is not None
        yield from _leaves(own, f"{name}.{child}" if name else child)
