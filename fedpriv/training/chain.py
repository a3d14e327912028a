"""Chains of layers with parameters from outside: one set, or those of the same network in every run
of a sweep."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.modes import in_mode
from fedpriv.training.own_gradients import PASSES, Pass, numbers
from fedpriv.training.record_dropout import Masked
from fedpriv.training.trainers.compile_layers import settings

DRAWING = (nn.Dropout, nn.Dropout2d)
BETWEEN = (
    nn.ReLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.Flatten,
    nn.Identity,
    L2Projection,
    Masked,
)
"""Layers without parameters that draw nothing and take each record by itself."""


@dataclass(frozen=True)
class Chain:
    """The layers in the order of their calls, by their names in the network.

    name: equal for networks that compute the same from equal parameters.
    numbers: that a forward pass, and a backward one with sums of clipped gradients, keep for each
        record.
    draws: whether layers draw random numbers.
    """

    layers: tuple[tuple[str, nn.Module], ...]
    name: Hashable
    numbers: int
    draws: bool

    @staticmethod
    def of(model: nn.Module, shape: tuple[int, ...]) -> Chain | None:
        """That of a network on records of `shape`, kept for the next call; None for one that is
        anything else."""
        if not any(model.children()):
            return None  # it would keep itself alive
        known = _chains.setdefault(model, {})
        if shape not in known:
            known[shape] = Chain._of(model, shape)
        return known[shape]

    @staticmethod
    def _of(model: nn.Module, shape: tuple[int, ...]) -> Chain | None:
        layers = tuple(_leaves(model, ""))
        parameters = [id(own) for _, layer in layers for own in layer.parameters()]
        if not parameters or parameters != [id(own) for own in model.parameters()]:
            return None  # a layer or a parameter is used twice
        kept = 0
        h = next(model.parameters()).new_zeros((1, *shape))
        with torch.no_grad(), in_mode(model, train=False):
            for _, layer in layers:
                if not _understood(layer, h):
                    return None
                read = h
                h = layer(h)
                kept += numbers(layer, read.shape, h.shape)
        draws = any(isinstance(layer, DRAWING) and layer.p > 0 for _, layer in layers)
        return Chain(layers, (shape, *(settings(layer) for _, layer in layers)), kept, draws)

    @property
    def stackable(self) -> bool:
        """Whether several networks can go at once: all parameters are linear layers', and nothing
        is drawn."""
        owners = all(
            type(layer) is nn.Linear
            for _, layer in self.layers
            if any(True for _ in layer.parameters())
        )
        return owners and not self.draws

    def forward(
        self, thetas: Tensor, x: Tensor, masks: Mapping[str, Tensor]
    ) -> tuple[list[Pass], Tensor]:
        """The pass of each layer with parameters, and the outputs (k, b, c).

        thetas: (k, d).
        x: (k, b, ...); k is 1 unless the chain is stackable.
        masks: what `Masked` layers multiply records with, (b, ...) by the names of buffers.
        """
        passes: list[Pass] = []
        h = x.flatten(0, 1)
        start = 0
        for name, layer in self.layers:
            if isinstance(layer, Masked):
                h = h * masks[f"{name}.mask"]
            elif type(layer) not in PASSES or not (
                sizes := [own.numel() for own in layer.parameters()]
            ):
                h = layer(h)
            else:
                parameters = torch.split(thetas[:, start : start + sum(sizes)], sizes, 1)
                own = PASSES[type(layer)](layer, parameters, h)
                if not own.written.requires_grad:
                    own.written.requires_grad_(torch.is_grad_enabled())
                passes.append(own)
                h = own.rows
                start = start + sum(sizes)
        return passes, h.view(*x.shape[:2], -1)


_chains: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], Chain | None]] = WeakKeyDictionary()


def _leaves(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    """The leaves of nested nn.Sequential in the order of their calls."""
    if type(module) is not nn.Sequential:
        return [(name, module)]
    inside = (
        (f"{name}.{child}" if name else child, own) for child, own in module._modules.items()
    )  # repeats too
    return [leaf for child, own in inside for leaf in _leaves(own, child)]


def _understood(layer: nn.Module, h: Tensor) -> bool:
    """Whether a layer that reads h (1, ...) keeps records apart, leaves what it reads as it is, and
    is known."""
    if getattr(layer, "inplace", False):
        return False
    match layer:
        case nn.Linear():
            return type(layer) is nn.Linear and h.dim() == 2
        case nn.Conv2d():
            plain = (
                layer.groups == 1
                and layer.padding_mode == "zeros"
                and not isinstance(layer.padding, str)
            )
            return type(layer) is nn.Conv2d and plain and h.dim() == 4
        case nn.Flatten():
            return layer.start_dim == 1
    return type(layer) in (nn.GroupNorm, *BETWEEN, *DRAWING)
