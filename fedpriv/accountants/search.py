"""Bisection for the accountants."""

from __future__ import annotations

from collections.abc import Callable


def bisect(too_low: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest value that is not `too_low`, which holds at `low` and not at `high`, rounded up
    by at most 1e-9 times the larger of itself and 1."""
    while high - low > 1e-9 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if too_low(middle) else (low, middle)
    return high
