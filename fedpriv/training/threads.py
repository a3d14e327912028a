"""Processor threads for small steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Context with one processor thread, if `wanted`.

    A step runs some sixty kernels. When each takes microseconds, waking a second thread costs more
    than it saves. On a busy machine each kernel even waits for that thread: eight times slower
    here.
    """
    before = torch.get_num_threads()
    if wanted:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if wanted:
            torch.set_num_threads(before)


@contextmanager
def kept_threads() -> Iterator[Callable[[bool], None]]:
    """Context after which there are as many processor threads as before. What it gives is called
    with whether what comes next has one thread; else it has as many as before."""
    before = torch.get_num_threads()

    def choose(one: bool) -> None:
        wanted = 1 if one else before
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)

    try:
        yield choose
    finally:
        choose(False)
