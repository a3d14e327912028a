"""Files of lines that one process at a time extends, and that keep every line that was written.

A line without its end was being written when a process died. It is cut off when the file is opened
again, so that nothing may rest on a line before it is on the disk.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import BinaryIO

from fedpriv.util.durable_files import fsync, fsync_folder
from fedpriv.util.file_locks import lock
from fedpriv.util.untrusted_files import OPEN_AS_IT_IS, TABLE_BYTES, require_regular

NO_LINKS: int = getattr(os, "O_NOFOLLOW", 0)


class LockedLines(AbstractContextManager["LockedLines"]):
    """A file of lines, open and locked. A context that closes it.

    path: of the file. It is made if it is missing; a symbolic link is refused.
    content: its whole lines when it was opened.
    cut: number of bytes of a line without its end, which were cut off.

    Raises BlockingIOError when another process has it open, ValueError for what is no regular
    file, and OSError.
    """

    def __init__(self, path: Path, *, mode: int = 0o666, wait: bool = False) -> None:
        """
        mode: permissions of a new file, less those that the process withholds (umask).
        wait: for another process that has it open.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | OPEN_AS_IT_IS | NO_LINKS
        self.path = path
        self._others_wait = wait
        with ExitStack() as opened:
            handle = os.open(path, flags, mode)
            self._file: BinaryIO = opened.enter_context(open(handle, "a+b", buffering=0))
            require_regular(handle, TABLE_BYTES)
            lock(handle, wait=wait)
            self._file.seek(0)
            content = self._file.read()
            self.content = content[: content.rfind(b"\n") + 1]
            self.cut = len(content) - len(self.content)
            self._file.truncate(len(self.content))
            if not self.content:
                fsync_folder(path.parent)
            opened.pop_all()

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        self._file.close()

    def append(self, lines: bytes) -> None:
        """Write whole lines, or raise OSError and write nothing. Afterwards they survive the end of
        the process."""
        before = os.fstat(self._file.fileno()).st_size
        left = lines
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:  # a disk that fills up may have taken a part
            self._file.truncate(before)
            raise

    def fsync(self) -> None:
        """Return once all lines survive the end of the machine. Raises ValueError when the file has
        left its place, where nobody would find them."""
        about = os.fstat(self._file.fileno())
        if not (self.path.exists() and os.path.samestat(self.path.stat(), about)):
            raise ValueError(f"{self.path} was deleted or replaced during the run")
        if self._others_wait:  # runs in lock step could not go on while this one waits for them
            os.fsync(self._file.fileno())
        else:
            fsync(self._file)
