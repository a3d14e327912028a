"""Long vectors in pieces that stay in a processor's cache: each number then passes through memory
once, however many operations it takes part in."""

from __future__ import annotations

from collections.abc import Iterator

PIECE = 2**16
"""Numbers of a piece. Half as many cost a tenth more calls; four times as many leave the cache."""


def pieces(size: int) -> Iterator[slice]:
    """Where each piece of a vector of `size` numbers lies.

    >>> [*pieces(PIECE + 5)]
    [slice(0, 65536, None), slice(65536, 65541, None)]
    """
    for start in range(0, size, PIECE):
        yield slice(start, min(start + PIECE, size))
