"""Waiting until files are on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

from fedpriv.together import Work, done

DISK_THREADS = 8


def keep(file: BinaryIO) -> None:
    """Return when no end of the process or the machine can take back what was written to `file`."""
    done(_Kept(file))


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
