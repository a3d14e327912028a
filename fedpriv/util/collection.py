"""Python's search for unreachable cycles while thousands of objects come to life together."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 100
"""Objects that one party of an exchange makes before it is done."""

_lock = threading.Lock()


@contextmanager
def rare_collections(parties: int) -> Iterator[None]:
    """Context in which a search for cycles begins after as many new objects as this many parties
    make. Each search reads all that live: without this, a step of ten thousand parties spends half
    of its time in searches that find nothing. Memory that no cycle holds is free at once, as ever.

    Only the outermost context of a process counts.
    """
    first = _lock.acquire(blocking=False)
    before = gc.get_threshold()
    try:
        if first:
            gc.set_threshold(max(before[0], OBJECTS * parties), *before[1:])
        yield
    finally:
        if first:
            gc.set_threshold(*before)
            _lock.release()
