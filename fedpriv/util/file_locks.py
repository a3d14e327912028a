"""Locks between processes, which end with the file or with the process. The one place that knows
how a system locks: `flock`, or on Windows one byte far behind the end of the file."""

from __future__ import annotations

import importlib
import os
import time
from contextlib import suppress
from typing import Any

fcntl: Any = None
with suppress(ImportError):
    fcntl = importlib.import_module("fcntl")

LOCKED_BYTE = 2**30
POLL = 0.1
"""Seconds until a waiting process asks Windows again."""


def lock(handle: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file.

    handle: its number.
    shared: whether others may have it locked as well, shared too. Windows has no such locks: there
        the file is locked alone.
    wait: for other processes, else BlockingIOError is raised.

    Raises OSError where files cannot be locked.
    """
    if fcntl is not None:
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        fcntl.flock(handle, how if wait else how | fcntl.LOCK_NB)
        return
    msvcrt: Any = importlib.import_module("msvcrt")
    place = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        while True:
            os.lseek(handle, LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
                return
            except PermissionError as error:
                if not wait:
                    raise BlockingIOError("locked by another process") from error
            time.sleep(POLL)
    finally:
        os.lseek(handle, place, os.SEEK_SET)
