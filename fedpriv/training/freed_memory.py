"""Keep the memory of a block for the next one.

Blocks have similar sizes, round after round. The GNU C library returns free memory to the operating
system, which later zeroes it again a page at a time: that of large arrays at once, since each has a
mapping of its own, and that at the end of the heap. This costs up to a tenth of a round of compiled
training, and two thirds of a round with ten million parameters.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Their numbers in malloc.h."""
FREE_BYTES = 2**31 - 1
"""Free memory at the end of the heap that the process may hold; the largest that the library takes.
Free memory between arrays that are in use stays with the process in any case."""
USER_SETTINGS = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "GLIBC_TUNABLES",
)
"""Environment variables by which a user decides; then nothing is changed."""


@cache
def keep_freed_memory() -> bool:
    """Let arrays of any size share the heap, and the process hold up to `FREE_BYTES`. Returns
    False, and changes nothing, with another C library or where the user has decided."""
    if any(name in os.environ for name in USER_SETTINGS):
        return False
    try:
        adjust = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return bool(adjust(MMAP_MAX, 0) and adjust(TRIM_THRESHOLD, FREE_BYTES))
