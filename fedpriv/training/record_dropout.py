"""Dropout of per-record gradients: what a record drops does not depend on other records.

torch.func.vmap draws random numbers by a record's place in the batch, so that removing one record
changes the dropout of all later ones, and with it their gradients. Here masks are an input of the
network, made from a record's key, the step, the layer and the unit's place in it.
"""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError, require
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.layers.masked_dropout import MaskedDropout
from fedpriv.training.layers.supported import SUPPORTED
from fedpriv.training.modes import kept_generators
from fedpriv.training.network_checks import vmap_batches
from fedpriv.training.random_words import random_words, row_counters, threshold
from fedpriv.training.untouched import untouched


class _Uncalled(nn.Module):
    """In the place of a dropout layer that a pass over zeros does not call: nobody knows the shape
    of its masks."""

    def forward(self, x: Tensor) -> Tensor:
        raise ConfigError("model", "Dropout", "dropout that every record calls")


class RecordDropout:
    """The dropout layers of a network as an input of it.

    model: a copy of the network in training mode, with `MaskedDropout` in the place of nn.Dropout,
        Dropout1d, Dropout2d and Dropout3d. A record's forward pass takes the tensors of `masks` as
        buffers, by their names.
    layers: the dropout layers in the order of their calls, each with its buffer's name and the
        shape of one record's mask.
    """

    apart = True  # it holds a copy only

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """example: one record (group of records), as the forward pass takes it; its values do not
        matter.

        Raises ConfigError for a network that draws random numbers in any other way, or calls a
        dropout layer twice.
        """
        self.model = copy.deepcopy(model).train()
        for name, layer in list(self.model.named_modules()):
            support = SUPPORTED.get(type(layer))
            if support is not None and support.dropout is not None and untouched(layer):
                parent, _, child = name.rpartition(".")
                p = float(layer.p)
                own = MaskedDropout(p, support.dropout) if p else nn.Identity()
                setattr(self.model.get_submodule(parent), child, own)
        with torch.no_grad():  # LSTM layers keep the weights that they compute in this call
            self.model.to(example.device)
        self.layers = self._probe(example)

    def _probe(self, example: Tensor) -> list[tuple[str, MaskedDropout, torch.Size]]:
        """The dropout layers that a forward pass calls, see `layers`."""
        batches = vmap_batches(self.model, tuple(example.shape), example.dtype)
        own = copy.deepcopy(self.model)  # a pass may leave something in a network
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
        try:
            with torch.no_grad(), kept_generators(example.device):
                before = _beside_torch()
                if batches:
                    torch.func.vmap(own, randomness="error")(example.unsqueeze(0))
                else:
                    _require_no_draws(own, example)
                if _beside_torch() != before:
                    raise RuntimeError("the network draws random numbers of Python or numpy")
            once = len({name for name, _, _ in found}) == len(found)
        except RuntimeError as error:
            if "random" not in str(error):
                raise
            once = False
        allowed = (
            "random numbers in training only from nn.Dropout, Dropout1d, 2d and 3d, each layer "
            "called once"
        )
        require(once, "model", type(self.model).__name__, allowed)
        called = {name for name, _, _ in found}
        for name in names.values():
            if f"{name}.mask" not in called:
                parent, _, child = name.rpartition(".")
                setattr(self.model.get_submodule(parent), child, _Uncalled())
        return found

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


def _require_no_draws(model: nn.Module, example: Tensor) -> None:
    """Raise RuntimeError if a forward pass draws from torch's generators."""
    devices = [example.device] if example.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        before = _generators(example.device)
        model(example)
        if any(
            not torch.equal(one, other) for one, other in zip(before, _generators(example.device))
        ):
            raise RuntimeError("the network draws random numbers")


def _generators(device: torch.device) -> list[Tensor]:
    """The states of torch's generators that a network on `device` may draw from."""
    own = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *own]


def _beside_torch() -> tuple[object, ...]:
    """The states of the generators of Python and numpy, which records would share by their
    places."""
    name, words, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - networks draw from it
    return random.getstate(), name, np.asarray(words).tobytes(), *rest


@cached_by_model
def record_dropout(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> RecordDropout:
    """The dropout layers of a network on records (groups) of this shape."""
    return RecordDropout(model, torch.zeros(shape, dtype=dtype, device=device))
