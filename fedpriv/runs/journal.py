"""rounds_begun.csv: one line for each attempt at a round, on disk before its first message leaves.

Whatever ends a process, the lines say what its parties may have shown. They are never cut back: a
round that was repeated after an interruption has two lines. A line without its end was being
written when the process died, so no message had left yet.

A seeded run shows nothing new when it repeats a round. Its lines are written as early, but they
need not be on disk before the next checkpoint (`Journal.fsync`).
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from pathlib import Path

from fedpriv.errors import FedprivError
from fedpriv.util.file_locks import lock
from fedpriv.util.locked_lines import LockedLines
from fedpriv.util.untrusted_files import TABLE_BYTES, opened, read_bytes

JOURNAL = "rounds_begun.csv"
HEADER = b"round,time\n"


class Journal(AbstractContextManager["Journal"]):
    """The journal of one run, open and locked, so that only one process at a time runs rounds. A
    context that closes it.

    path: of the file.
    attempts: how often each round was begun when the file was opened.
    total: number of lines by now.
    """

    def __init__(self, folder: Path) -> None:
        """Open or create the folder's file. Raises FedprivError when another process has it open,
        or when it is damaged."""
        self.path = folder / JOURNAL
        try:
            self._lines = LockedLines(self.path)
        except BlockingIOError as error:
            raise FedprivError(f"{folder}: another process is running it") from error
        except ValueError as error:
            raise FedprivError(f"{self.path} is damaged ({error})") from error
        with ExitStack() as stack:
            stack.enter_context(self)
            self.attempts = _counted(self.path, self._lines.content)
            if not self._lines.content:
                self._lines.append(HEADER)
                self.fsync()
            stack.pop_all()
        self.total = self.attempts.total()

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._lines.close()

    def append(self, round: int, *, synced: bool = True) -> None:
        """Record that a round begins. Afterwards the line survives the end of the process and, if
        `synced`, of the machine."""
        line = f"{round},{datetime.now(UTC).isoformat(timespec='microseconds')}\n".encode()
        self._lines.append(line)
        if synced:
            self.fsync()
        self.total += 1

    def fsync(self) -> None:
        """Return once all lines survive the end of the machine. Raises FedprivError when the file
        has left the folder: without its lines, the cost of a resumed run is unknown."""
        try:
            self._lines.fsync()
        except ValueError as error:
            raise FedprivError(str(error)) from error


def attempts(folder: Path) -> Counter[int]:
    """How often each round of a run was begun. Another process may be writing to the folder."""
    path = folder / JOURNAL
    try:
        content = read_bytes(path, TABLE_BYTES) if path.exists() else b""
    except ValueError as error:
        raise FedprivError(f"{path} is damaged ({error})") from error
    return _counted(path, content[: content.rfind(b"\n") + 1])


def repeated(attempts: Counter[int], completed: int) -> dict[int, int]:
    """Round: how many of its attempts are not recorded. For rounds up to `completed`, the round of
    the checkpoint, one attempt is."""
    times = {number: count - (number <= completed) for number, count in sorted(attempts.items())}
    return {number: count for number, count in times.items() if count}


def in_progress(folder: Path) -> bool:
    """Whether a process is running the run in `folder`."""
    try:
        with opened(folder / JOURNAL, TABLE_BYTES) as file:
            lock(file.fileno(), shared=True)
    except (FileNotFoundError, ValueError):  # none, or no regular file
        return False
    except BlockingIOError:
        return True
    return False


def _counted(path: Path, whole: bytes) -> Counter[int]:
    """Round: number of its lines. Raises FedprivError when the file is damaged."""
    header, *lines = whole.splitlines(keepends=True) or [HEADER]
    try:
        if header != HEADER:
            raise ValueError(f"its first line is {header!r}")
        return Counter(int(line.split(b",")[0]) for line in lines)
    except ValueError as error:
        raise FedprivError(f"{path} is damaged ({error})") from error
