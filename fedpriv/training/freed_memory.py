"""Keep the memory of a block for the next one.

Blocks have similar sizes, round after round. The GNU C library returns free memory at the end of
the heap to the operating system, which later zeroes it again a page at a time. That costs up to a
tenth of a round of compiled training.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Their numbers in malloc.h."""
FREE_BYTES = 2**28
"""Free memory that the process may hold."""
MAPPED_BYTES = 2**25
"""Larger arrays have a mapping of their own, which is returned with them. The library's maximum."""
USER_SETTINGS = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"
"""Environment variables by which a user decides; then nothing is changed."""


@cache
def keep_freed_memory() -> bool:
    """Let the process hold up to `FREE_BYTES`. Returns False, and changes nothing, with another C
    library or where the user has decided."""
    if any(name in os.environ for name in USER_SETTINGS):
        return False
    try:
        adjust = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(adjust(MMAP_THRESHOLD, MAPPED_BYTES) and adjust(TRIM_THRESHOLD, FREE_BYTES))
