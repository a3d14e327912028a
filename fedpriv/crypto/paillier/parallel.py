"""Work in several processes. Loops of big multiplications hold the interpreter's lock, so threads
would not help."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from fedpriv.errors import AggregationAbortedError

Part = TypeVar("Part")
Result = TypeVar("Result")


def even_ranges(count: int, parts: int) -> list[range]:
    """0..count-1 cut into at most `parts` ranges whose lengths differ by at most one; none is empty
    unless all are."""
    parts = max(1, min(parts, count))
    return [range(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def map_in_processes(
    function: Callable[[Part], Result], parts: Sequence[Part], workers: int
) -> list[Result]:
    """`function` of each part, in the order of the parts, in up to `workers` processes.

    In this process alone when there is one part, and in a daemon, which may have no children: the
    engine that runs silos as daemons has spread them over the processors already. Raises
    AggregationAbortedError when one dies.
    """
    if workers == 1 or len(parts) == 1 or multiprocessing.current_process().daemon:
        return [function(part) for part in parts]
    try:
        with ProcessPoolExecutor(
            min(workers, len(parts)), multiprocessing.get_context("fork")
        ) as pool:
            return list(pool.map(function, parts))
    except BrokenProcessPool as error:
        raise AggregationAbortedError("a process that shared the work has died") from error
