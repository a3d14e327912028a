"""Dropout of per-record gradients: what a record drops does not depend on other records.

torch.func.vmap draws random numbers by a record's place in the batch, so that removing one record
changes the dropout of all later ones, and with it their gradients. Here masks are an input of the
network, made from a record's key, the step, the layer and the unit's place in it.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import require
from fedpriv.training.graph import fresh
from fedpriv.training.masked_dropout import DROPOUTS, MaskedDropout
from fedpriv.training.modes import kept_generators
from fedpriv.training.per_network import once_per_network
from fedpriv.training.random_words import name_of, random_words, row_counters, threshold


class RecordDropout:
    """The dropout layers of a network as an input of it.

    model: a copy of the network in training mode, with `MaskedDropout` in the place of nn.Dropout,
        Dropout1d, Dropout2d and Dropout3d. A record's forward pass takes the tensors of `masks` as
        buffers, by their names.
    layers: the dropout layers in the order of their calls, each with its buffer's name and the
        shape of one record's mask.
    """

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """example: one record (group of records), as the forward pass takes it; its values do not
        matter.

        Raises ConfigError for a network that draws random numbers in any other way, or calls a
        dropout layer twice.
        """
        self.model = fresh(model, tuple(example.shape[1:]), example.dtype).train()
        for name, layer in list(self.model.named_modules()):
            whole = DROPOUTS.get(type(layer))
            if whole is not None:
                parent, _, child = name.rpartition(".")
                p = float(layer.p)
                # Part of a network may stay in evaluation mode.
                own = MaskedDropout(p, whole) if p and layer.training else nn.Identity()
                setattr(self.model.get_submodule(parent), child, own)
        self.model.to(example.device)
        self.layers = self._probe(example)

    def _probe(self, example: Tensor) -> list[tuple[str, MaskedDropout, torch.Size]]:
        """The dropout layers that a forward pass calls, see `layers`."""
        own = copy.deepcopy(self.model)
        found: list[tuple[str, MaskedDropout, torch.Size]] = []

        def note(layer: nn.Module, read: tuple[Tensor, ...]) -> None:
            assert isinstance(layer, MaskedDropout)
            shape = read[0].shape
            coins = shape[: len(shape) - layer.whole] + (1,) * layer.whole
            found.append((f"{names[layer]}.mask", layer, coins))

        names = {
            layer: name for name, layer in own.named_modules() if isinstance(layer, MaskedDropout)
        }
        for layer in names:
            layer.register_forward_pre_hook(note)
        with torch.no_grad(), kept_generators(example.device):
            before = _generators(example.device)
            own(example)
            drawn = _generators(example.device) != before
        once = sorted(name for name, _, _ in found) == sorted(
            f"{name}.mask" for name in names.values()
        )
        allowed = (
            "random numbers in training only from nn.Dropout, Dropout1d, 2d and 3d, each layer "
            "called once"
        )
        require(once and not drawn, "model", type(self.model).__name__, allowed)
        return found

    def names(self, steps: Sequence[int], layers: Sequence[str]) -> np.ndarray:
        """(steps, layers) uint64: names of the words that these layers draw in each step."""
        buffers = [name for name, _, _ in self.layers]
        places = [buffers.index(f"{layer}.mask") for layer in layers]
        found = [[name_of((step, place))[0] for place in places] for step in steps]
        return np.array(found, dtype=np.uint64).reshape(len(steps), len(layers))

    def masks(self, keys: np.ndarray, step: int) -> dict[str, Tensor]:
        """The masks (b, ...) of records (groups) with `keys` (b,) uint64 in this step, by the names
        of buffers."""
        found = {}
        for place, (name, layer, shape) in enumerate(self.layers):
            names = row_counters([(step, place)], 0, 1)
            words = random_words(keys, names, math.prod(shape), layer.mask.device).view(
                len(keys), *shape
            )
            found[name] = (words > threshold(layer.p)) * (1 / (1 - layer.p) if layer.p < 1 else 0.0)
        return found


def _generators(device: torch.device) -> tuple[object, ...]:
    """The states of the generators that a network on `device` may draw from."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    states = [state.numpy().tobytes() for state in (torch.get_rng_state(), *own)]
    numpys: Any = np.random.get_state()  # noqa: NPY002 - networks draw
    return *states, random.getstate(), numpys[1].tobytes(), *numpys[2:]


@once_per_network
def record_dropout(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> RecordDropout:
    """The dropout layers of a network on records (groups) of this shape."""
    return RecordDropout(model, torch.zeros(shape, dtype=dtype, device=device))
