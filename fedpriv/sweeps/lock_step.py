"""Runs side by side in one process, which do equal work as one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any

from fedpriv.util.work import Work, collected_by, run_grouped


class LockStep:
    """Jobs on threads, of which one runs at a time, in order. A job pauses where it asks for work
    (`run_work`).

    Once all active jobs wait for work, the work is done, equal work as one batch. Between two
    requests a job runs as if it was alone, so the rest of the program needs no locks. Torch's
    global generator is shared: code that draws from it must seed it first, and must not ask for
    work in between.

    jobs: functions to run.
    at_once: number of active jobs.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]], at_once: int) -> None:
        self._waiting: Iterator[_Runner] = iter([_Runner(job) for job in jobs])
        self._at_once = at_once

    def run(self) -> None:
        """Run all jobs to their end, then raise the exception of the first job that failed. An
        exception here, such as an interrupt, is first raised in every active job."""
        going = list(islice(self._waiting, self._at_once))
        ended: list[_Runner] = []
        try:
            while going:
                for runner in going:
                    runner.go_on()
                ended += [runner for runner in going if runner.ended]
                going = [runner for runner in going if not runner.ended]
                _work(going)
                going += islice(self._waiting, self._at_once - len(going))
        except BaseException as failure:
            for runner in going:
                runner.stop(failure)
            raise
        for runner in ended:
            if runner.raised is not None:
                raise runner.raised


class _Runner:
    """A job on its own thread, which runs only between `go_on` and its next request."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self.ended = False
        self.works: Sequence[Work[Any]] = ()
        self.results: list[Any] = []
        self.raised: BaseException | None = None
        self._stopped_by: BaseException | None = None
        self._stopping = False

    def go_on(self) -> None:
        """Let the job run until it asks for work or ends."""
        if self._thread is None:
            run = partial(copy_context().run, self._run)  # a data frame is given by the context
            self._thread = threading.Thread(target=run, daemon=True)
            self._thread.start()
        self._turn.release()
        self._back.acquire()

    def stop(self, failure: BaseException) -> None:
        """Raise `failure` at the job's next or current request, and let the job end."""
        if self._thread is None:
            return
        self._stopped_by = failure
        while not self.ended:
            self.go_on()

    def ask(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Called on the job's own thread: wait for the results of `works`."""
        if self._stopping:
            return [work.run() for work in works]
        self.works = works
        self._back.release()
        self._turn.acquire()
        if self._stopped_by is not None:
            self._stopping = True  # the job only cleans up from here on
            raise self._stopped_by
        results, self.results = self.results, []
        return results

    def _run(self) -> None:
        self._turn.acquire()
        try:
            with collected_by(self):
                self._job()
        except BaseException as failure:
            self.raised = failure
        finally:
            self.ended = True
            self._back.release()


def _work(runners: Sequence[_Runner]) -> None:
    """Do the work that all runners wait for."""
    results = iter(run_grouped([work for runner in runners for work in runner.works]))
    for runner in runners:
        runner.results = list(islice(results, len(runner.works)))
        runner.works = ()
