"""Networks that training refuses, each with one line that says what it supports."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.modes import seeded_dropout
from fedpriv.training.untouched import appearance

REAL = torch.float32, torch.float64


@cached_by_model
def check_parameters(model: nn.Module, types: tuple[torch.dtype, ...] = REAL) -> None:
    """Raise ConfigError unless every parameter is trained, by its gradient alone.

    types: the parameters are all of one of these.
    """
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    first = next((own.dtype for own in model.parameters()), types[0])
    for name, own in model.named_parameters():
        if own.dtype != first or first not in types:
            raise refused(model, f"parameters of one type, {names} ({name} has {own.dtype})")
        if not own.numel():
            raise refused(model, f"no empty parameters ({name} has shape {tuple(own.shape)})")
        if not own.requires_grad:
            raise refused(model, f"trainable parameters only ({name} is frozen)")
        if own._backward_hooks:
            raise refused(model, f"no hooks on parameters ({name} has one)")
    if shared := _overlapping(model):
        allowed = "parameters with memory of their own, or one parameter in two layers"
        raise refused(model, f"{allowed} ({shared[1]} lies over {shared[0]})")
    for name, part in model.named_modules():
        if part._forward_pre_hooks and any(isinstance(own, Tensor) for own in vars(part).values()):
            allowed = "weights of torch.nn.utils.parametrizations, not recomputed by a hook"
            raise refused(part, f"{allowed} (layer {name})")


def _overlapping(model: nn.Module) -> tuple[str, str] | None:
    """The names of two parameters that share memory, or twice that of one whose numbers do. A
    trainer that copies parameters one by one would train them apart."""
    places = []
    for name, own in model.named_parameters():
        extent = 1 + sum((n - 1) * step for n, step in zip(own.shape, own.stride()))
        if extent < own.numel():
            return name, name
        start = own.data_ptr()
        places.append((str(own.device), start, start + extent * own.element_size(), name))
    for one, other in pairwise(sorted(places)):
        if one[0] == other[0] and other[1] < one[2]:
            first, second = sorted((one[3], other[3]))
            return first, second
    return None


@cached_by_model
def refuse_shared_state(model: nn.Module) -> None:
    """Raise ConfigError if records influence each other through `model`, as in batch normalisation.
    Clipping the gradient of a record, or the update of a user, would then not bound its influence.
    """
    check_parameters(model)
    for name, part in model.named_modules():
        normalises = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if normalises or getattr(part, "track_running_stats", False):
            allowed = "no layer that mixes or remembers the records of a batch"
            raise refused(part, f"{allowed} (layer {name}; GroupNorm does neither)")


class Memory:
    """What a network could remember a record by, and how it looks now."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.values = [list(vars(part).values()) for part in model.modules()]  # ids stay theirs
        self.looks = appearance(model)
        self.tensors = self._versions()

    def _versions(self) -> list[tuple[int, int]]:
        found = [*self.model.buffers()]
        for part in self.model.modules():
            found += [own for own in vars(part).values() if isinstance(own, Tensor)]
        return [(id(own), own._version) for own in found]

    def require_unchanged(self) -> None:
        """Raise ConfigError if passes since then have left something in the network."""
        if appearance(self.model) != self.looks or self._versions() != self.tensors:
            raise remembers(self.model)


def remembers(model: nn.Module) -> ConfigError:
    """The error for a network in which a record leaves something for the next one."""
    return refused(
        model, "a network that keeps nothing from one pass to the next, for gradients of records"
    )


def _remembers(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a training pass over records of `shape` changes attributes of a network's parts."""
    own = copy.deepcopy(model).train()
    before = Memory(own)
    device = next((each.device for each in own.parameters()), None)
    with torch.no_grad(), seeded_dropout(device or torch.device("cpu"), 0):
        own(torch.zeros((2, *shape), dtype=dtype, device=device))
    try:
        before.require_unchanged()
    except ConfigError:
        return True
    return False


def changing_buffer(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> str | None:
    """The name of a buffer that a training pass over records of `shape` writes to.

    What counts is the write, not the value: a running mean of records that are zero stays zero, and
    a converged power iteration changes no bit until the weights move.
    """
    own = copy.deepcopy(model).train()
    before = {name: (buffer, buffer._version) for name, buffer in own.named_buffers()}
    if not before:
        return None
    device = next(own.parameters()).device
    with torch.no_grad(), seeded_dropout(device, 0):
        own(torch.zeros((2, *shape), dtype=dtype, device=device))
    for name, buffer in own.named_buffers():
        same, version = before.get(name, (None, 0))
        if buffer is not same or buffer._version != version:
            return name
    return None


@cached_by_model
def torch_func_obstacle(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> ConfigError | None:
    """Why torch.func cannot compute gradients through a network; None: it can."""
    for name, part in model.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            return refused(part, f"no backward hooks for gradients of records (layer {name})")
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.max_norm is not None:
            return refused(part, f"no max_norm, which moves weights, for those (layer {name})")
    buffer = changing_buffer(model, shape, dtype)
    if buffer is None:
        return remembers(model) if _remembers(model, shape, dtype) else None
    return refused(model, f"no buffers that change in training ({buffer}) for those of records")


@cached_by_model
def vmap_batches(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether torch.func.vmap knows how to batch every operation of a network on batches of
    `shape`. It knows none of torch's recurrent layers."""
    device = next((own.device for own in model.parameters()), None)
    try:
        with torch.no_grad():
            records = torch.zeros((1, *shape), dtype=dtype, device=device)
            torch.func.vmap(model, randomness="different")(records)
    except RuntimeError as error:
        if "atching rule" not in str(error):
            raise
        return False
    return True


def refused(part: nn.Module, allowed: str) -> ConfigError:
    """The error for a part of a network."""
    return ConfigError("model", type(part).__name__, allowed)
