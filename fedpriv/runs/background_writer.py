"""Writing files behind a run's rounds, so that no round waits for the disk."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True)
class SharedWriters:
    """Threads that write behind all of `runs` runs on their way side by side. Each run has its turn
    so many times less often: the time between is then as much work of its own as alone."""

    pool: Executor
    runs: int


class BackgroundWriter(AbstractContextManager["BackgroundWriter"]):
    """Does jobs on another thread, one at a time; of those that wait the newest alone is done. A
    context that ends when nothing waits any more, however it is left.

    shared: whose threads; None: one of its own.

    every: seconds from one job's beginning to the next's where a run has the process to itself.
    """

    def __init__(self, shared_writers: SharedWriters | None = None, *, every: float = 0.0) -> None:
        self._own = None if shared_writers else ThreadPoolExecutor(1, thread_name_prefix="behind")
        self._pool: Executor = shared_writers.pool if shared_writers else self._own  # type: ignore[assignment]
        self._lock = threading.Lock()
        self._next: Callable[[], None] | None = None
        self._working: Future[None] | None = None
        self._every = every * (shared_writers.runs if shared_writers else 1)
        self._due = -math.inf

    def __exit__(self, *failure: object) -> None:
        try:
            self.finish()
        finally:
            if self._own:
                self._own.shutdown()

    def submit(self, job: Callable[[], None]) -> None:
        """Have `job` done some time; one handed over later may take its place. Raises what an
        earlier job raised."""
        with self._lock:
            if self._working is not None and self._working.done():
                self._working.result()
            self._next = job
            if time.monotonic() >= self._due:
                self._begin()

    def finish(self) -> None:
        """Wait until the newest job is done. Raises what it, or an earlier one, raised."""
        with self._lock:
            self._due = -math.inf
            if self._next is not None:
                self._begin()
            working = self._working
        if working is not None:
            working.result()

    def _begin(self) -> None:
        """Have what waits done, unless that is under way."""
        if self._working is None:
            self._working = self._pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._lock:
                job = self._next
                if job is None or time.monotonic() < self._due:
                    self._working = None
                    return
                self._next = None
                self._due = time.monotonic() + self._every
            job()
