"""A file of what was answered or charged, with a counter in another place.

The counter says before each write how long the file is going to be, with its digest, and after it
that it is. So an older file, a changed one, one with further lines, a copy in another place and a
missing one are noticed; a write that a crash has cut is there or is not. An older file and its
older counter together are not noticed: keep the counter out of what is copied, such as snapshots of
a machine.
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

NEXT, NOW = "next", "now"
"""Before a size and a digest in a counter: the file is going to be that, or is."""
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
            after = self._digest.copy()
            after.update(lines)
            self._write_count(NEXT, self._size + len(lines), after.hexdigest())
            self._lines.append(lines)
            self._lines.fsync()
            self._count(lines)
            self._write_count(NOW, self._size, self._digest.hexdigest())
        except (OSError, ValueError) as error:
            raise RefusedError(f"{self.path}: {_reason(error)}") from error

    def _count(self, lines: bytes) -> None:
        self._digest.update(lines)
        self._size += len(lines)

    def _write_count(self, when: str, size: int, digest: str) -> None:
        self._counter.append(f"{when} {size} {digest}\n".encode())
        self._counter.fsync()

    def _require_newest(self) -> None:
        """Raise ValueError unless the file is what the counter says, before or after a write that a
        crash has cut. A new file gets its counter here, before its first line."""
        counts = [line.split(" ", 1) for line in self._counter.content.decode().splitlines()]
        size, digest = len(self.content), hashlib.sha256(self.content).hexdigest()
        found = f"{size} {digest}"
        if not counts:
            if self.content:
                raise ValueError(f"it was copied or moved without its counter {self._counter.path}")
            self._write_count(NOW, size, digest)
            return
        known = [count for when, count in counts if when == NOW][-1:]
        cut = counts[-1][0] == NEXT
        if found not in [*known, *([counts[-1][1]] if cut else [])]:
            raise ValueError(
                "it is not as it was last used: older, changed or removed. Put the newest one "
                f"back, or remove {self._counter.path} too and forget all that it says"
            )
        if cut:
            self._write_count(NOW, size, digest)


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
