"""Bisection over a monotone refutation."""

from __future__ import annotations

from collections.abc import Callable


def largest_refuted(
    refuted: Callable[[float], bool], *, low: float = 0.0, high: float, steps: int
) -> float:
    """The largest value in [low, high] that `refuted` excludes, never above the exact one.

    A value below a refuted one is refuted too. Returns `low` if nothing is refuted.
    """
    if not refuted(low):
        return low
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low
