"""Seconds per phase of a round."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up the seconds of named phases. An outer phase does not include its inner phases."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to phase `name`."""
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
        """Add `seconds` that were measured elsewhere, while the surrounding phase waited."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._inner += seconds
