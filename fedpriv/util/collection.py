"""Python's search for unreachable cycles while thousands of objects come to life together."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

OBJECTS = 100
"""Objects that one party of an exchange makes before it is done."""

_lock = threading.Lock()


def collect_rarely(parties: int) -> Callable[[], None]:
    """Begin a search for cycles only after as many new objects as this many parties make. Returns
    the function that ends this.

    Each search reads all that live: a step of ten thousand parties would spend half of its time in
    searches that find nothing. Memory that no cycle holds is free at once, as ever. Only the first
    call of a process has an effect, until it ends.
    """
    if not _lock.acquire(blocking=False):
        return lambda: None
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], OBJECTS * parties), *before[1:])

    def end() -> None:
        gc.set_threshold(*before)
        _lock.release()

    return end
