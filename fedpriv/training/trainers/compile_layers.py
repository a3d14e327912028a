"""Which networks the batched trainer supports: chains of layers on features, or first on images.
On features they may have residual sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.batched import BatchedLayer
from fedpriv.training.layers.chain import ChainLayer, LayerChain
from fedpriv.training.layers.mapping import layer_chain
from fedpriv.training.layers.windows import tiles
from fedpriv.training.vectors import ParameterLayout


@dataclass(frozen=True)
class Link:
    """A layer of the network and what computes it for many users.

    pool: as in `Context`.
    other: for a sum, the place among the links whose output it adds; -1: the records.
    """

    layer: ChainLayer
    batched: type[BatchedLayer[Any]]
    pool: tuple[int, int]
    other: int | None = None

    @property
    def module(self) -> nn.Module:
        return self.layer.module


def parameter_layout(links: Sequence[Link]) -> ParameterLayout:
    """The layout of the parameters that the batched layers use."""
    pairs = [(link.batched.orders, own.shape) for link in links for own in link.module.parameters()]
    orders = [known.get(len(shape), tuple(range(len(shape)))) for known, shape in pairs]
    offsets = [
        link.layer.offset + sum(link.layer.sizes[:i])
        for link in links
        for i in range(len(link.layer.sizes))
    ]
    return ParameterLayout([shape for _, shape in pairs], orders, offsets)


@cached_by_model
def compile_layers(model: nn.Module, shape: tuple[int, ...]) -> list[Link] | None:
    """The links that compute `model` on records of `shape`, or None if the batched trainer does not
    support the network."""
    chain = layer_chain(model, shape)
    if chain is None or not chain.residual:
        return None
    layers = [layer for layer in chain.layers if not layer.idle]
    others = _others(chain)
    links: list[Link] = []
    on_images = len(shape) > 1
    pooled = True  # since the last convolution
    for i, layer in enumerate(layers):
        of = layer.support
        if not on_images and len(layer.read) > 2:
            return None
        batched = of.on_features if not on_images else of.on_images if links else of.at_input
        if batched is None or not _accepted(layer.module):
            return None
        pool = (1, 1)
        match layer.module:
            case nn.Conv2d():
                pool = _window(layers[i + 1 :])
                if any(side % window for side, window in zip(layer.written[2:], pool)):
                    return None
                pooled = pool == (1, 1)
            case nn.MaxPool2d():
                if pooled:
                    return None
                pooled = True
            case nn.Flatten():
                on_images = False
            case L2Projection():
                if any(link.layer.sizes for link in links):
                    return None  # its backward pass is not written
        links.append(Link(layer, batched, pool, others[i]))
    return None if on_images else links


def _others(chain: LayerChain) -> list[int | None]:
    """For each layer that is not idle, the place among them whose output it adds to that of the
    layer before it; None for a layer that is no sum."""
    place = -1
    places = [place]  # where the records, then each layer's output, is found
    found: list[int | None] = []
    for i, layer in enumerate(chain.layers):
        if not layer.idle:
            one, other = layer.reads if len(layer.reads) == 2 else (i - 1, i - 1)
            earlier = one if other == i - 1 else other
            found.append(places[earlier + 1] if len(layer.reads) == 2 else None)
            place += 1
        places.append(place)
    return found


def _accepted(module: nn.Module) -> bool:
    match module:
        case nn.Conv2d():
            return module.dilation == (1, 1)
        case nn.GroupNorm():
            return module.num_groups == 1
        case nn.Flatten():
            return module.end_dim == -1
    return True


def _window(layers: Sequence[ChainLayer]) -> tuple[int, int]:
    """The window of the max-pooling that comes next, before anything but elementwise layers."""
    for layer in layers:
        module = layer.module
        if isinstance(module, nn.MaxPool2d):
            return tiles(module)
        if not isinstance(module, nn.ReLU | nn.Dropout | nn.Dropout2d):
            break
    return (1, 1)
