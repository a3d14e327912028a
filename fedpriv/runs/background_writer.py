"""Write files on another thread, so that no round waits for the disk."""

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
    """Threads that write for several runs side by side.

    pool: the threads.
    runs: number of runs at the same time. Each run writes that many times less often, so that it
        computes as much between two checkpoints as it would alone.
    """

    pool: Executor
    runs: int


class BackgroundWriter(AbstractContextManager["BackgroundWriter"]):
    """Runs jobs on another thread, one at a time; only the newest pending job is kept. A context
    that ends when no job is pending.

    shared_writers: threads to use; None: one of its own.
    every: shortest time in seconds between the starts of two jobs, for a run that has the process
        to itself.
    """

    def __init__(self, shared_writers: SharedWriters | None = None, *, every: float = 0.0) -> None:
        self._own = None if shared_writers else ThreadPoolExecutor(1, thread_name_prefix="writer")
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
        """Run `job` later, unless a newer job replaces it. Raises what an earlier job raised."""
        with self._lock:
            if self._working is not None and self._working.done():
                self._working.result()
            self._next = job
            if time.monotonic() >= self._due:
                self._start()

    def finish(self) -> None:
        """Wait until the newest job is done. Raises what it or an earlier job raised."""
        with self._lock:
            self._due = -math.inf
            if self._next is not None:
                self._start()
            working = self._working
        if working is not None:
            working.result()

    def _start(self) -> None:
        """Start the pending job, unless the thread is at work."""
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
