"""Memory that a block has given back serves the next one.

Blocks come in like sizes, round after round. The GNU C library returns what lies free at the heap's
end to the operating system, and has it zeroed again a page at a time: up to a tenth of a round of
compiled training.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Their numbers in malloc.h."""
KEPT = 2**28
"""Bytes that may lie free."""
LARGEST = 2**25
"""Bytes from which on an array has a mapping of its own, which ends with it: as large as it can
be.
"""
SAID = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"
"""By these a user says so; then nothing is changed."""


@cache
def keep_freed_memory() -> bool:
    """Have the process keep up to `KEPT` free bytes. False, and nothing is done, with another C
    library, or where the user has said what is to be kept."""
    if any(name in os.environ for name in SAID):
        return False
    try:
        adjust = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(adjust(MMAP_THRESHOLD, LARGEST) and adjust(TRIM_THRESHOLD, KEPT))
