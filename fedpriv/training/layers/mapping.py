"""Which networks are described by the table of layers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.chain import LayerChain, chain_of
from fedpriv.training.layers.trace_checks import traced_chain
from fedpriv.training.layers.traced import Call, UnmappedError
from fedpriv.training.untouched import untouched


@dataclass(frozen=True)
class Unmapped:
    """A network that no table of layers describes.

    reason: why, as the end of a sentence.
    """

    reason: str


def layer_chain(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> LayerChain | None:
    """The chain of a network on records of `shape`, or None if the network is anything else."""
    found = mapped(model, shape, dtype)
    return found if isinstance(found, LayerChain) else None


@cached_by_model
def mapped(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> LayerChain | Unmapped:
    """The chain of a network on records of `shape`, or why there is none.

    A network that is a chain by its structure needs no trace. Another is traced, and its trace is
    compared with it.
    """
    leaves = list(_leaves(model, ""))
    calls = [Call(name, leaf, (i - 1,)) for i, (name, leaf) in enumerate(leaves)]
    try:
        return chain_of(model, shape, dtype, calls, traced=False)
    except UnmappedError as error:
        if not any(model.children()):
            return Unmapped(str(error))
    try:
        return traced_chain(model, shape, dtype)
    except UnmappedError as error:
        return Unmapped(str(error))


def _leaves(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """The leaves of nested nn.Sequential in the order of their calls, also those called twice."""
    if type(module) is not nn.Sequential or not untouched(module):
        yield name, module
        return
    for child, own in module._modules.items():
        assert own is not None
        yield from _leaves(own, f"{name}.{child}" if name else child)
