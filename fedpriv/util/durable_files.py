"""Files that survive a crash or a full disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedpriv.util.work import Work, run_work

DISK_THREADS = 8


def state_folder() -> Path:
    """Where this user's state outlives runs on this machine: `$XDG_STATE_HOME/fedpriv`, by default
    below ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "fedpriv"


def fsync(file: BinaryIO) -> None:
    """Return once what was written to `file` survives the end of the machine."""
    run_work(_Fsync(file))


def fsync_all(paths: Iterable[Path]) -> None:
    """`fsync` files that have been written and closed."""
    for path in paths:
        with open(path, "rb") as file:
            fsync(file)


def fsync_folder(folder: Path) -> None:
    """`fsync` the names of a folder's files. Windows does so by itself."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Write `content` to `path`. After a crash, and for any reader, the file is either the old or
    the new one.

    mode: permissions of the new file, less those that the process withholds (umask).
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.unlink(missing_ok=True)  # left by a crash, with permissions of its own
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            fsync(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # free the space on a full disk
        raise


@dataclass(frozen=True, eq=False)
class _Fsync(Work[None]):
    file: BinaryIO

    batch_key = "fsync"

    def run(self) -> None:
        self.file.flush()
        sync = getattr(os, "fdatasync", os.fsync)  # it also writes the length; Windows has none
        sync(self.file.fileno())

    @classmethod
    def run_batch(cls, works: Sequence[_Fsync]) -> list[None]:
        """In parallel: a disk syncs many files in little more time than one."""
        with ThreadPoolExecutor(min(len(works), DISK_THREADS)) as pool:
            return list(pool.map(_Fsync.run, works))
