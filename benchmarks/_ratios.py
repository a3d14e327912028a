"""Alternating turns of two or more programs, and the ratios of their times."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def alternating_turns(
    programs: Mapping[str, Callable[[], object]],
    turns: int,
    *,
    warm_up: int = 1,
    now: Callable[[], float] = time.process_time,
) -> dict[str, list[float]]:
    """Seconds of each program in each turn; in every turn each program runs once.

    warm_up: turns before the first that counts; they compile and load what is needed.
    now: the clock; by default it counts processor seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(turns + warm_up):
        for name, program in programs.items():
            since = now()
            program()
            if turn >= warm_up:
                seconds[name].append(now() - since)
    return seconds


def compared(turns: Sequence[tuple[float, float]]) -> tuple[float, float, float, float, float]:
    """Compare two programs.

    turns: seconds of one and of the other in each turn.

    Returns the medians of both, then median, smallest and largest ratio other / one of a turn.
    """
    one, other = (statistics.median(column) for column in zip(*turns))
    ratios = [theirs / own for own, theirs in turns]
    return one, other, statistics.median(ratios), min(ratios), max(ratios)


def ratio(one: Sequence[float], other: Sequence[float]) -> str:
    """How many times as fast as the other one is: median, smallest and largest ratio of a turn."""
    _, _, median, least, most = compared([*zip(one, other)])
    return f"ratio {median:.2f} ({least:.2f} to {most:.2f})"
