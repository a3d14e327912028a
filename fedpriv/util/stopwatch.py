"""Seconds per phase of a round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Adds up the seconds spent in named phases; a phase inside another is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time until the block ends under `name`."""
        since = time.perf_counter()
        outer = self._inner
        self._inner = 0.0
        try:
            yield
        finally:
            spent = time.perf_counter() - since
            self.seconds[name] = self.seconds.get(name, 0.0) + spent - self._inner
            self._inner = outer + spent

    def add(self, name: str, seconds: float) -> None:
        """Count `seconds` under `name` that somebody else measured while the phase around this call
        waited."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._inner += seconds

    def timed(self, name: str, items: Iterator[T]) -> Iterator[T]:
        """The same items, the time to make each counted under `name`."""
        while True:
            with self.phase(name):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item
