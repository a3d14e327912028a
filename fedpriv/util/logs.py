"""run.log in a run's folder: everything that Python's logger "fedpriv" gets."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedpriv.util.printing import printable

RUN_LOG = "run.log"
LOGGER = logging.getLogger("fedpriv")


class _Log(logging.FileHandler):
    """A log that cannot be written does not end the run."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        return


class _Lines(logging.Formatter):
    """Escapes signs that would control a terminal that shows the log."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Context in which this thread's log lines, from INFO on, are appended to the folder's log: in
    a sweep side by side, each run has a thread."""
    thread = threading.get_ident()
    log = _Log(folder / RUN_LOG, delay=True)
    log.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    log.addFilter(lambda record: record.thread == thread)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(log)
    try:
        yield
    finally:
        LOGGER.removeHandler(log)
        log.close()
