"""What a network runs under for a while: a mode, and a seed for its dropout. Both come back as they
were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def in_mode(module: nn.Module, train: bool) -> Iterator[None]:
    """`module` and everything below it train or not; the former modes come back."""
    before = [(part, part.training) for part in module.modules()]
    module.train(train)
    try:
        yield
    finally:
        for part, mode in before:
            part.training = mode


@contextmanager
def seeded_dropout(device: torch.device, seed: int) -> Iterator[None]:
    """Context in which `device` draws dropout from `seed`; its global generator comes back as it
    was."""
    if device.type == "cuda":
        with torch.random.fork_rng([device]), torch.cuda.device(device):
            torch.default_generator.manual_seed(seed)
            torch.cuda.manual_seed(seed)
            yield
    else:
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            yield
