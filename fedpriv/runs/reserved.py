"""Folders in which one process at a time may start runs."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedpriv.errors import FedprivError


@contextmanager
def reserved(folder: Path, existing: Path) -> Iterator[None]:
    """Context in which no other process may start runs in `folder`, whose first records Hydra
    overwrites. The folder is made, and in the end removed if nothing is in it.

    existing: a folder above it that stays.

    Raises FedprivError when another process has it reserved, and in place of an OSError, such as
    that of a full disk, that names no file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FedprivError(f"{folder}: another process is running it") from error
        except OSError as error:
            if error.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP):
                raise  # those of network disks, which cannot lock a folder
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None or isinstance(error, BrokenPipeError):
            raise
        raise FedprivError(f"{folder}: {error.strerror}") from error
    finally:
        os.close(handle)
        _remove_empty(folder, existing)


def _remove_empty(folder: Path, existing: Path) -> None:
    """Remove a folder and those above it, up to `existing`, as long as they are empty."""
    with suppress(OSError):  # not empty, or not there
        for path in [folder, *folder.parents]:
            if path.resolve() == existing.resolve():
                return
            path.rmdir()
