"""Networks that training refuses, each with one line that says what it supports."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedpriv.errors import ConfigError
from fedpriv.training.cached_by_model import cached_by_model
from fedpriv.training.modes import seeded_dropout

REAL = torch.float32, torch.float64


def check_parameters(model: nn.Module, types: Sequence[torch.dtype] = REAL) -> None:
    """Raise ConfigError unless every parameter is trained, by its gradient alone.

    types: the parameters are all of one of these.
    """
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    first = next((own.dtype for own in model.parameters()), types[0])
    for name, own in model.named_parameters():
        if own.dtype != first or first not in types:
            raise refused(model, f"parameters of one type, {names} ({name} has {own.dtype})")
        if not own.requires_grad:
            raise refused(model, f"trainable parameters only ({name} is frozen)")
        if own._backward_hooks:
            raise refused(model, f"no hooks on parameters ({name} has one)")
    for name, part in model.named_modules():
        if part._forward_pre_hooks and any(isinstance(own, Tensor) for own in vars(part).values()):
            allowed = "weights of torch.nn.utils.parametrizations, not recomputed by a hook"
            raise refused(part, f"{allowed} (layer {name})")


def mixing_layer(model: nn.Module) -> tuple[str, nn.Module] | None:
    """The first layer, with its name, that mixes or remembers the records of a batch, as batch
    normalisation does."""
    for name, part in model.named_modules():
        normalises = isinstance(part, nn.modules.batchnorm._BatchNorm)
        if normalises or getattr(part, "track_running_stats", False):
            return name, part
    return None


def refuse_shared_state(model: nn.Module) -> None:
    """Raise ConfigError if records influence each other through `model`: a clipped gradient of one
    record, or a clipped update of one user, would then not bound the influence of the record or of
    the user."""
    check_parameters(model)
    found = mixing_layer(model)
    if found is not None:
        name, layer = found
        allowed = (
            f"no layer that mixes or remembers the records of a batch (layer {name}; GroupNorm "
            "does neither)"
        )
        raise refused(layer, allowed)


@cached_by_model
def changing_buffer(model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype) -> str | None:
    """The name of a buffer that a training pass over records of `shape` changes."""
    own = copy.deepcopy(model).train()
    before = {name: buffer.clone() for name, buffer in own.named_buffers()}
    if not before:
        return None
    device = next(own.parameters()).device
    with torch.no_grad(), seeded_dropout(device, 0):
        own(torch.zeros((2, *shape), dtype=dtype, device=device))
    changed = (n for n, buffer in own.named_buffers() if not torch.equal(buffer, before[n]))
    return next(changed, None)


def torch_func_obstacle(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[nn.Module, str] | None:
    """Why torch.func cannot compute gradients through a network: which part is in the way, and what
    is allowed."""
    for name, part in model.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            return part, f"no backward hooks for gradients of records (layer {name})"
    buffer = changing_buffer(model, shape, dtype)
    return None if buffer is None else (model, f"no buffers that change in training ({buffer})")


def refused(part: nn.Module, allowed: str) -> ConfigError:
    """The error for a part of a network."""
    return ConfigError("model", type(part).__name__, allowed)
