"""Turns of two programs side by side, and what they come to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def compared(turns: Sequence[tuple[float, float]]) -> tuple[float, float, float, float, float]:
    """turns: seconds of one and of the other. Medians of both, and the median, least and largest
    number of times that one was as fast as the other in a turn."""
    one, other = (statistics.median(column) for column in zip(*turns))
    ratios = [theirs / own for own, theirs in turns]
    return one, other, statistics.median(ratios), min(ratios), max(ratios)
