"""Bisection for the accountants."""

from __future__ import annotations

from collections.abc import Callable


def bisect(
    too_low: Callable[[float], bool], low: float, high: float, *, within: float = 1e-9
) -> float:
    """The smallest value that is not `too_low`, which holds at `low` and not at `high`, rounded up
    by at most `within` times the larger of itself and 1."""
    while high - low > within * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high
