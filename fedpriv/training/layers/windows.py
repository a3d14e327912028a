"""Windows of pooling layers."""

from __future__ import annotations


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """Height and width of a window."""
    return value if isinstance(value, tuple) else (value, value)
