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
    """Hands each line to the log of the thread that said it: one place to ask, however many runs are side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[int, _Lines] = {}

    def emit(self, record: logging.LogRecord) -> None:
        log = self.logs.get(record.thread or 0)
        if log is not None:
            log.handle(record)


_LOGS = _OfThreads()


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Context in which what this thread logs, from INFO on, is added to the folder's log: in a sweep side by side every
    run has a thread."""
    log, thread = _Lines(folder / NAME, delay=True), threading.get_ident()
    log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(_LOGS)
    _LOGS.logs[thread] = log
    try:
        yield
    finally:
        _LOGS.logs.pop(thread, None)
        log.close()
