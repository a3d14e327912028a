"""rounds_begun.csv: a line for each time that a round was begun, on disk before the round's first
message leaves.

A seeded run shows nothing new when it repeats a round: its lines are written as early, and are on
disk by the time that a checkpoint is (`Journal.fsync`).

Whatever ends a process, the lines tell what its parties may have shown. They are never cut back: a
round that is begun again after an interruption has two lines. A line without its end was being
written when the process died, so that nothing had left yet.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from fedpriv.errors import FedprivError
from fedpriv.util.durable_files import fsync, fsync_folder

NAME = "rounds_begun.csv"
HEADER = b"round,time\n"


class Journal:
    """The file of one run, open and locked: one process at a time begins rounds. A context that
    closes it.

    new: whether there was no file.
    attempts: how often each round was begun when the file was opened.
    total: how many lines it has by now.
    """

    def __init__(self, folder: Path) -> None:
        """Open the folder's file, which is made if need be. Raises FedprivError when another
        process has it open, or when it is not what this class writes."""
        self.path = folder / NAME
        self.new = not self.path.exists()
        self._file: BinaryIO = open(self.path, "a+b", buffering=0)  # noqa: SIM115  (as long as the run)
        try:
            self._lock()
            self.attempts = self._read()
        except BaseException:
            self.close()
            raise
        self.total = self.attempts.total()
        if self.new:
            fsync_folder(folder)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the lock back."""
        self._file.close()

    def append(self, round: int, *, synced: bool = True) -> None:
        """Note that a round begins. Once this returns, no end of the process takes it back, nor, if
        it is `synced`, of the machine."""
        self._write(f"{round},{datetime.now(UTC).isoformat(timespec='microseconds')}\n".encode())
        if synced:
            self.fsync()
        self.total += 1

    def fsync(self) -> None:
        """Return when no end of the machine can take back what was noted."""
        fsync(self._file)

    def _write(self, line: bytes) -> None:
        """A disk that fills up takes a part and says so; the next try to write raises. A line that
        lacks its end would be dropped, and its round not charged."""
        left = line
        while left:
            left = left[self._file.write(left) :]

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FedprivError(f"{self.path.parent}: another process runs there") from error

    def _read(self) -> Counter[int]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._file.truncate(len(whole))
        if not whole:
            self._write(HEADER)
            self.fsync()
        return _counted(self.path, whole)


def attempts(folder: Path) -> Counter[int]:
    """How often each round of a run was begun, by a folder that another process may be writing
    to.
    """
    path = folder / NAME
    content = path.read_bytes() if path.exists() else b""
    return _counted(path, content[: content.rfind(b"\n") + 1])


def repeated(attempts: Counter[int], done: int) -> dict[int, int]:
    """How often each round was begun besides the one time that counts for each of the first `done`
    rounds, which a checkpoint has behind it."""
    times = {number: count - (number <= done) for number, count in sorted(attempts.items())}
    return {number: count for number, count in times.items() if count}


def held(folder: Path) -> bool:
    """Whether a process is at work on a run."""
    try:
        with open(folder / NAME, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _counted(path: Path, whole: bytes) -> Counter[int]:
    """The rounds of whole lines. Raises FedprivError when they are not what this module writes."""
    header, *lines = whole.splitlines(keepends=True) or [HEADER]
    try:
        if header != HEADER:
            raise ValueError(f"its first line is {header!r}")
        return Counter(int(line.split(b",")[0]) for line in lines)
    except ValueError as error:
        raise FedprivError(f"{path} is damaged ({error})") from error
