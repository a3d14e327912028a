"""Work in several processes. Threads would not help: big multiplications hold the interpreter's
lock."""

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
    """0..count-1 cut into at most `parts` ranges whose lengths differ by at most one. None is empty
    unless count is 0."""
    parts = max(1, min(parts, count))
    return [range(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def map_in_processes(
    function: Callable[[Part], Result], parts: Sequence[Part], workers: int
) -> list[Result]:
    """`function` of each part, in the order of the parts, in up to `workers` processes.

    Everything stays in this process if there is one part. So it does in a daemon, which may have no
    children: an engine that runs silos as daemons has spread them over the processors already.
    Raises AggregationAbortedError when a process dies.
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


def map_evenly(
    function: Callable[[list[Part]], list[Result]], items: Sequence[Part], workers: int
) -> list[Result]:
    """`function` of lists that make up `items`; its results as one list, in order."""
    parts = [list(items[part.start : part.stop]) for part in even_ranges(len(items), workers)]
    return [result for part in map_in_processes(function, parts, workers) for result in part]
