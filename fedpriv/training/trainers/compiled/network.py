"""Which networks are compiled."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.buffers import epochs_a_word, own_words, shared_words
from fedpriv.training.layers.compiled_specs import (
    GROUP_NORM,
    NORM_OF_RELU,
    RELU,
    LayerSpec,
    Place,
)
from fedpriv.training.layers.mapping import Unmapped, mapped
from fedpriv.training.random_words import name_of
from fedpriv.training.trainers.compile_layers import compile_layers


@dataclass(frozen=True)
class CompiledNetwork:
    """The layers of a network.

    layers: in the order of their calls.
    outputs: of the last one.
    """

    layers: ctypes.Array[LayerSpec]
    outputs: int


@cached_by_model
def compiled_network(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> CompiledNetwork | Unmapped:
    """The layers of a network on records of `shape` and `dtype`, or why they are not compiled."""
    if dtype != torch.float32:
        return Unmapped("its records are not of float32")
    found = mapped(model, shape)
    if isinstance(found, Unmapped):
        return found
    links = compile_layers(model, shape)
    if links is None:
        return Unmapped("its layers are no chain that is compiled")
    x = Place(shape[0], shape[1:] or (1, 1), images=len(shape) > 1)
    specs: list[LayerSpec] = []
    for link in links:
        make = link.layer.support.compiled
        spec = make(link.module, x, link.pool) if make is not None else None
        if spec is None:
            kind = type(link.module).__name__
            return Unmapped(f"layer {link.layer.name} ({kind}) is not compiled")
        computed, read = spec
        if computed and computed[0].schema == GROUP_NORM and specs and specs[-1].schema == RELU:
            specs.pop()  # the norm includes it
            computed[0].schema = NORM_OF_RELU
        specs += computed
        x = replace(read, drawing=x.drawing + link.layer.draws)
    return CompiledNetwork((LayerSpec * len(specs))(*specs), x.width)


@lru_cache(maxsize=64)
def word_names(
    epochs: int, places: int, layers: int, shared: bool, own: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The names of all random words of up to `places` batches an epoch, as `Masks` draws them:
    (groups, places, words) uint64 of layers of probability 1/2, and (epochs, places, layers) of
    others; empty where there are none."""
    groups = -(-epochs // epochs_a_word(layers))
    words = -(-layers // 32)
    paths = (
        [shared_words(*path) for path in np.ndindex(groups, places, words)] if shared else [],
        [own_words(*path) for path in np.ndindex(epochs, places, layers)] if own else [],
    )
    first, second = (
        np.array([name_of(path)[0] for path in some], dtype=np.uint64) for some in paths
    )
    return first, second
