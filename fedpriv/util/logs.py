"""run.log in a run's folder: what was said, by Python's logging (logger "fedpriv")."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NAME = "run.log"
LOGGER = logging.getLogger("fedpriv")


class _Lines(logging.FileHandler):
    """A log that cannot be written does not end the run."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            return

    def handleError(self, record: logging.LogRecord) -> None:
        return


class _OfThreads(logging.Handler):
    """Hands each line to the log of the thread that said it: one place to ask, however many runs
    are side by side. The logger has it while there is a log."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, _Lines] = {}
        self._changing = threading.Lock()

    def open(self, thread: int, log: _Lines) -> None:
        """Give a thread its log."""
        with self._changing:
            self.logs[thread] = log
            LOGGER.addHandler(self)

    def shut(self, thread: int) -> None:
        """Take a thread's log away."""
        with self._changing:
            self.logs.pop(thread, None)
            if not self.logs:
                LOGGER.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        log = self.logs.get(record.thread or 0)
        if log is not None:
            log.handle(record)


_LOGS = _OfThreads()


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Context in which what this thread logs, from INFO on, is added to the folder's log: in a
    sweep side by side every run has a thread."""
    log = _Lines(folder / NAME, delay=True)
    thread = threading.get_ident()
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    _LOGS.open(thread, log)
    try:
        yield
    finally:
        _LOGS.shut(thread)
        log.close()
