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


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """Context in which what this thread logs, from INFO on, is added to the folder's log: in a sweep side by side every
    run has a thread."""
    handler, thread = _Lines(folder / NAME, delay=True), threading.get_ident()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda record: record.thread == thread)
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        handler.close()
