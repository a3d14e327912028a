"""Which networks the batched trainer knows: nn.Sequential chains, link by link."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from fedpriv.models.l2_projection import L2Projection
from fedpriv.training.trainers.layers import convolution, dense
from fedpriv.training.trainers.layers.base import Layer

Kinds = dict[type[nn.Module], type[Layer[Any]]]

ELEMENTWISE: Kinds = {nn.ReLU: dense.ReLU, nn.Dropout: dense.Dropout}
ON_IMAGES: Kinds = {**ELEMENTWISE, nn.Dropout2d: convolution.Dropout2d}


@dataclass(frozen=True)
class Link:
    """A leaf of the network and the batched layer that computes it.

    pool: as in `Context`.
    """

    module: nn.Module
    kind: type[Layer[Any]]
    pool: tuple[int, int] = (1, 1)

    @property
    def name(self) -> Hashable:
        """Equal for leaves that compute the same from equal parameters."""
        return settings(self.module)

    @property
    def draws(self) -> bool:
        """Whether the leaf draws random numbers."""
        return isinstance(self.module, nn.Dropout | nn.Dropout2d)

    def order(self, parameter: Tensor) -> tuple[int, ...]:
        """In which order of dimensions the batched layer keeps one user's `parameter`."""
        return self.kind.stored.get(parameter.dim(), tuple(range(parameter.dim())))


def settings(layer: nn.Module) -> Hashable:
    """A layer's type and all that it was made with; its parameters come from outside."""
    kept = {
        key: value
        for key, value in vars(layer).items()
        if not key.startswith("_") and key != "training"
    }
    return type(layer), *kept.items(), getattr(layer, "bias", None) is None


_compiled: WeakKeyDictionary[nn.Module, dict[tuple[int, ...], list[Link] | None]] = (
    WeakKeyDictionary()
)


def compile_layers(module: nn.Module, shape: tuple[int, ...]) -> list[Link] | None:
    """The chain that computes `module` on records of `shape`, or None if the batched trainer does
    not know how. Kept for the next call: the layers of a network stay as they are."""
    if not any(module.children()):
        return _compile(module, shape)  # its own link would keep it alive
    known = _compiled.setdefault(module, {})
    if shape not in known:
        known[shape] = _compile(module, shape)
    return known[shape]


def _compile(module: nn.Module, shape: tuple[int, ...]) -> list[Link] | None:
    leaves = _leaves(module)
    parameters = [id(p) for leaf in leaves for p in leaf.parameters()]
    if parameters != [id(p) for p in module.parameters()] or not parameters:
        return None  # a module or a parameter is used twice, or none is there to train
    if len(shape) == 3 and isinstance(leaves[0], nn.Conv2d):
        return _image_links(leaves, shape[1:])
    head: list[Link] = []
    if len(shape) > 1:
        if not _flattens(leaves[0]):
            return None
        head = [Link(leaves[0], dense.Flatten)]
        leaves = leaves[1:]
    if type(leaves[0]) is L2Projection:
        head = [*head, Link(leaves[0], dense.L2Projection)]
        leaves = leaves[1:]
    tail = _feature_links(leaves)
    return None if tail is None else head + tail


def _leaves(module: nn.Module) -> list[nn.Module]:
    """The leaves of nested nn.Sequential in the order of their calls, without those that do nothing
    in training."""
    if type(module) is nn.Sequential:
        return [leaf for child in module for leaf in _leaves(child)]
    idle = isinstance(module, nn.Identity) or (
        isinstance(module, nn.Dropout | nn.Dropout2d) and module.p == 0
    )
    return [] if idle else [module]


def _flattens(leaf: nn.Module) -> bool:
    return type(leaf) is nn.Flatten and (leaf.start_dim, leaf.end_dim) == (1, -1)


def _feature_links(leaves: list[nn.Module]) -> list[Link] | None:
    kinds: Kinds = {**ELEMENTWISE, nn.Linear: dense.Linear, nn.GroupNorm: dense.GroupNorm}
    known = all(type(leaf) in kinds and getattr(leaf, "num_groups", 1) == 1 for leaf in leaves)
    return [Link(leaf, kinds[type(leaf)]) for leaf in leaves] if known else None


def _image_links(leaves: list[nn.Module], sides: tuple[int, ...]) -> list[Link] | None:
    chain: list[Link] = []
    for i, leaf in enumerate(leaves):
        if _flattens(leaf):
            tail = _feature_links(leaves[i + 1 :])
            return None if tail is None else [*chain, Link(leaf, convolution.Flatten), *tail]
        if type(leaf) is nn.Conv2d and _plain(leaf):
            sides = convolution.output_sides(leaf, sides)
            pool = _window(leaves[i + 1 :])
            if min(sides) < 1 or any(side % window for side, window in zip(sides, pool)):
                return None
            chain.append(Link(leaf, convolution.Conv2d if i else convolution.InputConv2d, pool))
            sides = tuple(side // window for side, window in zip(sides, pool))
            pooled = pool == (1, 1)
        elif type(leaf) is nn.MaxPool2d and not pooled:
            chain.append(Link(leaf, convolution.MaxPool2d))
            pooled = True
        elif type(leaf) in ON_IMAGES:
            chain.append(Link(leaf, ON_IMAGES[type(leaf)]))
        else:
            return None
    return None


def _plain(leaf: nn.Conv2d) -> bool:
    plain_padding = leaf.padding_mode == "zeros" and not isinstance(leaf.padding, str)
    return plain_padding and leaf.groups == 1 and leaf.dilation == (1, 1)


def _window(leaves: list[nn.Module]) -> tuple[int, int]:
    """The window of the max-pooling that comes next, before anything but elementwise layers."""
    for leaf in leaves:
        if type(leaf) is nn.MaxPool2d:
            kernel = pair(leaf.kernel_size)
            stride = pair(leaf.stride)
            simple = (
                kernel == stride and pair(leaf.padding) == (0, 0) and pair(leaf.dilation) == (1, 1)
            )
            return kernel if simple and not leaf.ceil_mode and not leaf.return_indices else (1, 1)
        if type(leaf) not in ON_IMAGES:
            break
    return (1, 1)


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of a window."""
    return value if isinstance(value, tuple) else (value, value)
