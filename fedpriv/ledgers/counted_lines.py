"""A file of what was answered or charged, with a counter in another place.

The counter says after each write how long the file is, with its digest. So an older file, a changed
one, a copy in another place and a missing one are noticed. An older file and its older counter
together are not: keep the counter out of what is copied, such as snapshots of a machine.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from fedpriv.errors import RefusedError
from fedpriv.util.durable_files import state_folder
from fedpriv.util.locked_lines import LockedLines

OTHERS, WRITERS = 0o077, 0o022
"""Permissions of others than the owner: all of them, and to write."""


@dataclass(frozen=True)
class CountedFile:
    """Where a site keeps what it has answered, or a ledger what runs have charged.

    path: of the file, for one set of records.
    counters: folder of its counter; None: `journals` in the folder of this user's state.
    in_sight: whether others may look into the file's folder. They may write there never.
    """

    path: str
    counters: str | None = None
    in_sight: bool = False

    def open(self, *, wait: bool = False) -> CountedLines:
        """Open or create both. Raises RefusedError.

        wait: for another process that has it open.
        """
        place = Path(self.path)
        path = Path(os.path.realpath(place.parent)) / place.name
        folder = state_folder() / "journals" if self.counters is None else Path(self.counters)
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        counter = folder / f"{path.stem}-{name}.txt"
        return CountedLines(
            path, counter, wait=wait, forbidden=WRITERS if self.in_sight else OTHERS
        )


class CountedLines(AbstractContextManager["CountedLines"]):
    """The lines of such a file, locked.

    path: of the file.
    content: its lines when it was opened.
    cut: bytes of a last line that was never whole (`LockedLines.cut`).

    Raises RefusedError, in one line, for a file that another process has open, that others can
    read, that is a symbolic link, or that is not as the counter saw it last.
    """

    def __init__(
        self, path: Path, counter: Path, *, wait: bool = False, forbidden: int = OTHERS
    ) -> None:
        """
        wait: for another process that has it open.
        forbidden: permissions that others may not have in the file's folder.
        """
        self.path = path
        with ExitStack() as opened:
            try:
                self._lines = opened.enter_context(_private(path, wait, forbidden))
                self._counter = opened.enter_context(_private(counter, wait, OTHERS))
                self.content = self._lines.content
                self.cut = self._lines.cut
                self._digest = hashlib.sha256()
                self._size = 0
                self._require_newest()
            except BlockingIOError as error:
                raise RefusedError(f"{path}: another process has it open") from error
            except (OSError, ValueError) as error:
                raise RefusedError(f"{path}: {_reason(error)}") from error
            self._count(self.content)
            opened.pop_all()

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the locks."""
        self._lines.close()
        self._counter.close()

    def append(self, lines: bytes) -> None:
        """Write whole lines. Afterwards they and the counter survive the end of the machine.
        Raises RefusedError."""
        try:
            self._lines.append(lines)
            self._lines.fsync()
            self._count(lines)
            self._write_count()  # never ahead of the file
        except (OSError, ValueError) as error:
            raise RefusedError(f"{self.path}: {_reason(error)}") from error

    def _count(self, lines: bytes) -> None:
        self._digest.update(lines)
        self._size += len(lines)

    def _write_count(self) -> None:
        self._counter.append(f"{self._size} {self._digest.hexdigest()}\n".encode())
        self._counter.fsync()

    def _require_newest(self) -> None:
        """Raise ValueError unless the file begins with all that the counter saw. A new file gets
        its counter here, before its first line."""
        counts = self._counter.content.decode().splitlines()
        if not counts:
            if self.content:
                raise ValueError(f"it was copied or moved without its counter {self._counter.path}")
            self._write_count()
            return
        size, _, seen = counts[-1].partition(" ")
        if hashlib.sha256(self.content[: int(size)]).hexdigest() != seen:
            raise ValueError(
                "it is not as it was last used: older, changed or removed. Put the newest one "
                f"back, or remove {self._counter.path} too and forget all that it says"
            )


def _private(path: Path, wait: bool, forbidden: int) -> LockedLines:
    """A file for its owner only, in a folder where others do not have these permissions. Raises
    OSError or ValueError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = LockedLines(path, mode=0o600, wait=wait)
    for place, allowed, others in ((path.parent, 700, forbidden), (path, 600, OTHERS)):
        mode = stat.S_IMODE(os.stat(place).st_mode)
        if mode & others:
            lines.close()
            raise ValueError(f"others can open {place} (mode {mode:04o}); chmod {allowed} it")
    return lines


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "it is a symbolic link"
    return str(error)
