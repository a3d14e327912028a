"""Dropout of per-record gradients in which what a record drops is its own affair.

torch.func.vmap draws random numbers by a record's place in the batch, so that removing one record
changes the dropout of all later ones, and with it their gradients. Here masks are an input of the
network: made from a record's key, the step, the layer and the unit's place in it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.errors import require
from fedpriv.training.random_words import random_words, row_counters, threshold

CHANNELS = (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
"""Layers that drop whole channels, by the number of dimensions over which they do."""


class Masked(nn.Module):
    """Multiplies what it reads by its buffer `mask`.

    whole: how many of the last dimensions share one coin.
    """

    mask: Tensor

    def __init__(self, p: float, whole: int) -> None:
        super().__init__()
        self.p = p
        self.whole = whole
        self.register_buffer("mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


class RecordDropout:
    """The dropout layers of a network as an input of it.

    model: the network, a copy in training mode with `Masked` in the place of nn.Dropout, Dropout1d,
    Dropout2d and Dropout3d. A record's forward pass takes the tensors of `masks` as buffers, by
    their names.
    """

    def __init__(self, model: nn.Module, example: Tensor) -> None:
        """example: one record (group of records), as the forward pass takes it; its values do not
        matter.

        Raises ConfigError for a network that draws random numbers in any other way, or calls a
        dropout layer twice.
        """
        self.model = copy.deepcopy(model).train()
        for name, layer in list(self.model.named_modules()):
            whole = next(
                (dims for dims, kind in enumerate(CHANNELS, start=1) if type(layer) is kind), 0
            )
            if type(layer) is nn.Dropout or whole:
                parent, _, child = name.rpartition(".")
                p = float(layer.p)
                setattr(
                    self.model.get_submodule(parent),
                    child,
                    Masked(p, whole) if p else nn.Identity(),
                )
        self.model.to(example.device)
        self.layers = self._probe(example)

    @staticmethod
    def of(model: nn.Module, x: Tensor) -> RecordDropout:
        """That of a network on records (groups) like those of x (n, ...), kept for the next
        call.
        """
        known = _known.setdefault(model, {})
        kind = x.shape[1:], x.dtype, x.device
        if kind not in known:
            known[kind] = RecordDropout(
                model, torch.zeros(x.shape[1:], dtype=x.dtype, device=x.device)
            )
        return known[kind]

    def _probe(self, example: Tensor) -> list[tuple[str, Masked, torch.Size]]:
        """Each layer that a forward pass calls, with its buffer's name and the shape of one
        record's mask."""
        found: list[tuple[str, Masked, torch.Size]] = []

        def note(layer: nn.Module, read: tuple[Tensor, ...]) -> None:
            assert isinstance(layer, Masked)
            shape = read[0].shape
            found.append(
                (
                    f"{names[layer]}.mask",
                    layer,
                    shape[: len(shape) - layer.whole] + (1,) * layer.whole,
                )
            )

        names = {
            layer: name for name, layer in self.model.named_modules() if isinstance(layer, Masked)
        }
        hooks = [layer.register_forward_pre_hook(note) for layer in names]
        try:
            with torch.no_grad():
                torch.func.vmap(self.model, randomness="error")(example.unsqueeze(0))
            once = len({name for name, _, _ in found}) == len(found)
        except RuntimeError as error:
            if "random" not in str(error):
                raise
            once = False
        finally:
            for hook in hooks:
                hook.remove()
        allowed = (
            "random numbers in training only from nn.Dropout, Dropout1d, 2d and 3d, each layer "
            "called once"
        )
        require(once, "model", type(self.model).__name__, allowed)
        return found

    def masks(self, keys: np.ndarray, step: int) -> dict[str, Tensor]:
        """The masks (b, ...) of records (groups) with `keys` (b,) uint64 in this step, by the names
        of buffers."""
        found = {}
        for place, (name, layer, shape) in enumerate(self.layers):
            names = row_counters((step, place), 0, 1)
            words = random_words(keys, names, math.prod(shape), layer.mask.device).view(
                len(keys), *shape
            )
            found[name] = (words > threshold(layer.p)) * (1 / (1 - layer.p) if layer.p < 1 else 0.0)
        return found


_known: WeakKeyDictionary[nn.Module, dict[Hashable, RecordDropout]] = WeakKeyDictionary()
"""By network and what its records are like: networks are looked at and copied once, not in every
round."""
