"""Which networks are compiled."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import nn

from fedpriv.training.layers.chain import ChainLayer, LayerChain, Unmapped, mapped
from fedpriv.training.layers.compiled_specs import (
    ADD_SLOT,
    DROPOUT,
    EMBEDDING,
    GROUP_NORM,
    KEEP,
    MASK,
    NORM_OF_RELU,
    RECALL,
    RELU,
    SEQUENCE,
    LayerSpec,
    Place,
    Pooled,
)
from fedpriv.training.layers.parts import Sum, pair, tiles
from fedpriv.training.layers.traced import UnmappedError
from fedpriv.training.masked_dropout import MaskedDropout
from fedpriv.training.per_network import once_per_network
from fedpriv.training.random_words import epochs_a_word, name_of, own_words, shared_words


@dataclass(frozen=True, eq=False)
class CompiledNetwork:
    """The layers of a network.

    shape: of a record.
    layers: in the order of their calls.
    outputs: of the last one.
    words: how many words the records may have; 0: they have numbers.
    masks: names of the `MaskedDropout` layers, which draw by a record's key.
    size: how many parameters there are.
    """

    shape: tuple[int, ...]
    layers: ctypes.Array[LayerSpec]
    outputs: int
    words: int
    masks: tuple[str, ...]
    size: int

    @property
    def halves(self) -> tuple[bool, ...]:
        """Whether a layer that draws random numbers has probability 1/2, of each of them."""
        return tuple(bool(own.flag) for own in self.layers if own.schema == DROPOUT)


@once_per_network
def compiled_network(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> CompiledNetwork | Unmapped:
    """The layers of a network on records of `shape` and `dtype`, or why they are not compiled."""
    if dtype not in (torch.float32, torch.int64):
        return Unmapped("its records are neither of float32 nor words")
    chain = mapped(model, shape, dtype)
    if isinstance(chain, Unmapped):
        return chain
    try:
        return _Writer(chain, shape).write()
    except UnmappedError as error:
        return Unmapped(str(error))


class _Writer:
    """Writes a chain's layers down.

    A layer reads what the one before wrote. Where the network reads something else, or reads it
    twice, the value is kept in a slot.

    layers: without those that do nothing in training.
    reads: of `layers`, by their places among these; -1: the records.
    specs: so far.
    places: what each layer writes; -1: the records.
    masks: those so far that read a mask.
    """

    def __init__(self, chain: LayerChain, shape: tuple[int, ...]) -> None:
        self.size = chain.size
        self.shape = shape
        self.specs: list[LayerSpec] = []
        self.layers: list[ChainLayer] = []
        self.reads: list[list[int]] = []
        same = [-1]  # which kept layer computes the value of each layer
        for layer in chain.layers:
            read = [same[place + 1] for place in layer.reads]
            if layer.idle:
                same.append(read[0])
            else:
                same.append(len(self.layers))
                self.layers.append(layer)
                self.reads.append(read)
        self.ending = same[-1]
        match shape:
            case (channels, height, width):
                records = Place(channels, (height, width), images=True)
            case (steps, features) if steps > 1:
                records = Place(features, steps=steps)
                self.specs.append(records.spec(SEQUENCE))
            case (features,):
                records = Place(features)
            case _:
                raise UnmappedError("its records are neither features nor sequences nor images")
        self.places = {-1: records}
        self.masks: list[str] = []
        self.slots: dict[int, int] = {}

    def write(self) -> CompiledNetwork:
        """Raises UnmappedError for a layer that is not compiled."""
        self._keep(-1)
        pooled: set[int] = set()  # layers that the convolution before computes
        for i, (layer, read) in enumerate(zip(self.layers, self.reads)):
            if i in pooled:
                self.places[i] = self.places[i - 1]
            elif isinstance(layer.module, Sum):
                self._sum(i, *read)
            else:
                if read != [i - 1]:
                    self._spec(RECALL, read[0])
                place, pool = self._pool_after(i)
                if place is not None:
                    pooled.add(place)
                self.places[i] = self._layer(layer, self.places[read[0]], pool)
            self._keep(i)
        if self.ending != len(self.layers) - 1:
            self._spec(RECALL, self.ending)
        width = self.places[self.ending]
        if width.images or width.steps > 1:
            raise UnmappedError("its outputs are no features")
        words = [own.number for own in self.specs if own.schema == EMBEDDING]
        return CompiledNetwork(
            shape=self.shape,
            layers=(LayerSpec * len(self.specs))(*self.specs),
            outputs=width.width,
            words=min(words, default=0),
            masks=tuple(self.masks),
            size=self.size,
        )

    def _layer(self, layer: ChainLayer, x: Place, pool: Pooled) -> Place:
        """Write a layer that reads `x`; returns what it writes."""
        make = layer.support.compiled
        spec = make(layer.module, x, pool) if make else None
        if spec is None:
            kind = type(layer.module).__name__
            raise UnmappedError(f"layer {layer.name} ({kind}) is not compiled")
        computed, written = spec
        if sum(own.parameters for own in computed) != sum(layer.sizes):
            raise UnmappedError(f"layer {layer.name} has parameters of other sizes than its type")
        before = self.specs[-1].schema if self.specs else None
        if computed and computed[0].schema == GROUP_NORM and before == RELU:
            self.specs.pop()  # the norm includes it
            computed[0].schema = NORM_OF_RELU
        for own in computed:
            own.offset += layer.offset
            if own.schema == DROPOUT:
                own.number = sum(spec.schema == DROPOUT for spec in self.specs)
            if own.schema == MASK:
                own.number = len(self.masks)
                self.masks.append(layer.name)
        self.specs += computed
        return written

    def _sum(self, i: int, one: int, other: int) -> None:
        if i - 1 not in (one, other):
            self._spec(RECALL, one)
        elif one != i - 1:
            one, other = other, one
        self._spec(ADD_SLOT, other)
        self.places[i] = self.places[one]

    def _keep(self, i: int) -> None:
        """Keep the value of layer i if anything but the next layer reads it."""
        if self._readers(i) != [i + 1]:
            self.slots[i] = len(self.slots)
            self._spec(KEEP, i)

    def _readers(self, i: int) -> list[int]:
        """The layers that read the value of layer i; one more reads the outputs."""
        reads = [*self.reads, [self.ending]]
        return [k for k, read in enumerate(reads) for place in read if place == i]

    def _spec(self, schema: int, i: int) -> None:
        self.specs.append(self.places[i].spec(schema, number=self.slots[i]))

    def _pool_after(self, i: int) -> tuple[int | None, Pooled]:
        """The pooling, and its place, that the convolution i can compute itself."""
        if not isinstance(self.layers[i].module, nn.Conv2d):
            return None, Pooled()
        for k, layer in enumerate(self.layers[i + 1 :], i + 1):
            module = layer.module
            if self._readers(k - 1) != [k] or self.reads[k] != [k - 1]:
                break
            if isinstance(module, nn.AvgPool2d) and k == i + 1:
                return k, Pooled(pair(module.kernel_size), mean=True)
            if isinstance(module, nn.MaxPool2d) and tiles(module) != (1, 1):
                return k, Pooled(tiles(module))
            channels = isinstance(module, MaskedDropout) and module.whole == 2
            if not channels and not isinstance(
                module, nn.ReLU | nn.Tanh | nn.Sigmoid | nn.Dropout2d
            ):
                break
        return None, Pooled()


@lru_cache(maxsize=64)
def word_names(epochs: int, places: int, halves: tuple[bool, ...]) -> tuple[np.ndarray, ...]:
    """The names of all random words of up to `places` batches an epoch: (groups, places, words)
    uint64 of layers of probability 1/2, and (epochs, places, layers) of others; empty where there
    are none.

    halves: as in `CompiledNetwork`.
    """
    layers = len(halves)
    shared = (-(-epochs // epochs_a_word(layers)), places, -(-layers // 32))
    paths = (
        [shared_words(*path) for path in np.ndindex(shared)] if any(halves) else [],
        [own_words(*path) for path in np.ndindex(epochs, places, layers)]
        if not all(halves)
        else [],
    )
    return tuple(np.array([name_of(own)[0] for own in some], dtype=np.uint64) for some in paths)
