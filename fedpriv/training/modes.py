"""Contexts in which a network has another mode, or draws its dropout from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_mode(module: nn.Module, train: bool) -> Iterator[None]:
    """Context in which `module` and all its parts are in training (or evaluation) mode. Each part
    gets back its former mode."""
    before = [(part, part.training) for part in module.modules()]
    module.train(train)
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode


@contextmanager
def kept_generators(device: torch.device) -> Iterator[None]:
    """Context after which torch's generators of `device` have their state from before."""
    if device.type == "cuda":
        with torch.random.fork_rng([device]), torch.cuda.device(device):
            yield
    else:
        with torch.random.fork_rng([]):
            yield


def seed_generators(device: torch.device, seed: int) -> None:
    """Have `device` draw from `seed` from now on."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def seeded_dropout(device: torch.device, seed: int) -> Iterator[None]:
    """Context in which `device` draws dropout from `seed`. Afterwards its generator has the
    state from before."""
    with kept_generators(device):
        seed_generators(device, seed)
        yield
