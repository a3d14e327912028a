"""Files that a crash or a full disk leaves whole."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fedpriv.together import Work, done

DISK_THREADS = 8


def keep(file: BinaryIO) -> None:
    """Return when no end of the process or the machine can take back what was written to `file`."""
    done(_Kept(file))


def keep_all(paths: Iterable[Path]) -> None:
    """The same of files that have been written and closed."""
    for path in paths:
        with open(path, "rb") as file:
            keep(file)


def keep_names(folder: Path) -> None:
    """The same of the names of a folder's files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, content: bytes) -> None:
    """Write `content` to `path` so that a reader, or a crash, sees the old file or the new one and nothing between."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            keep(file)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)  # a full disk needs the room
        raise


@dataclass(frozen=True, eq=False)
class _Kept(Work[None]):
    file: BinaryIO

    @property
    def kind(self) -> str:
        return "kept"

    def alone(self) -> None:
        self.file.flush()
        os.fdatasync(self.file.fileno())  # of the metadata it writes the length

    @classmethod
    def together(cls, works: Sequence[_Kept]) -> list[None]:
        """Side by side: the disk takes many files in little more time than one."""
        with ThreadPoolExecutor(min(len(works), DISK_THREADS)) as pool:
            return list(pool.map(_Kept.alone, works))
