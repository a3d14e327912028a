"""Contexts in which a network has another mode, a seed for its dropout, or one thread."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
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
    """Context after which the generators of `device`, Python and numpy have their state from
    before."""
    python = random.getstate()
    numpy = np.random.get_state()  # noqa: NPY002 - networks draw from it
    try:
        with _kept_by_torch(device):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002 - networks draw from it


@contextmanager
def _kept_by_torch(device: torch.device) -> Iterator[None]:
    if device.type == "cuda":
        with torch.random.fork_rng([device]), torch.cuda.device(device):
            yield
    else:
        with torch.random.fork_rng([]):
            yield


def seed_generators(device: torch.device, seed: int) -> None:
    """Have `device`, Python and numpy draw from `seed` from now on."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - networks draw from it
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


@contextmanager
def kept_threads() -> Iterator[Callable[[bool], None]]:
    """Context after which there are as many processor threads as before. What it gives is called
    with whether what comes next has one thread; else it has as many as before.

    A step runs some sixty kernels. When each takes microseconds, waking a second thread costs more
    than it saves. On a busy machine each kernel even waits for that thread: eight times slower
    here.
    """
    before = torch.get_num_threads()

    def choose(one: bool) -> None:
        wanted = 1 if one else before
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    try:
        yield choose
    finally:
        choose(False)
