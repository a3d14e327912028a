"""Networks that training refuses, each with one line that says what it supports."""

from __future__ import annotations

import copy

import torch
from torch import nn

from fedpriv.errors import ConfigError
from fedpriv.training.graph import device_of
from fedpriv.training.per_network import once_per_network
from fedpriv.training.record_dropout import record_dropout

REAL = torch.float32, torch.float64


@once_per_network
def check_parameters(model: nn.Module, types: tuple[torch.dtype, ...] = REAL) -> None:
    """Raise ConfigError unless the network can be copied and every parameter is trained, by its
    gradient alone.

    types: the parameters are all of one of these.
    """
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise refused(model, "networks in Python, not in TorchScript")
    for name, own in model.named_parameters():
        if isinstance(own, nn.UninitializedParameter):
            raise refused(model, f"no lazy parameters before a first pass ({name})")
    names = " or ".join(str(dtype).removeprefix("torch.") for dtype in types)
    first = next((own.dtype for own in model.parameters()), types[0])
    for name, own in model.named_parameters():
        if own.dtype != first or first not in types:
            raise refused(model, f"parameters of one type, {names} ({name} has {own.dtype})")
        if not own.numel():
            raise refused(model, f"no empty parameters ({name} has shape {tuple(own.shape)})")
        if not own.requires_grad:
            raise refused(model, f"trainable parameters only ({name} is frozen)")
    try:
        copy.deepcopy(model)
    except Exception as error:  # of an attribute
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise refused(model, f"a network that copy.deepcopy copies ({line[:90]})") from error


@once_per_network
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


def refused(part: nn.Module, allowed: str) -> ConfigError:
    """The error for a part of a network."""
    return ConfigError("model", type(part).__name__, allowed)


def check_local_training(network: nn.Module, *, pooled: bool) -> None:
    """Raise ConfigError for a network that users, or whole silos (`pooled`), cannot train."""
    if not pooled:
        refuse_shared_state(network)
    check_parameters(network, (torch.float32,))


def check_record_gradients(
    network: nn.Module,
    shape: tuple[int, ...],
    *,
    text: bool,
    group: int = 1,
    isolated: bool = True,
) -> None:
    """Raise ConfigError for a network without clipped gradients of records (groups of `group`).

    shape: shape of one record's features.
    text: whether the features are numbers of characters.
    isolated: whether what a record drops may not depend on other records.
    """
    refuse_shared_state(network)
    if isolated:
        dtype = torch.int64 if text else torch.float32
        record_dropout(network, (group, *shape), dtype, device_of(network))
