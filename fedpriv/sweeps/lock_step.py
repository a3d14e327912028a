"""Runs that go on side by side in one process, so that what they all wait for is done in one go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from fedpriv.util.work import Result, Work, collected_by, run_grouped


class LockStep:
    """Jobs on threads of which one runs at a time, in order; a job hands over where it asks for
    work (`run_work`).

    When all that have begun wait for work, it is done, that of one kind together. What a job does
    between two requests is as if it was alone, so nothing else of the program needs to know about
    threads. Torch's global generator is left in any state: what draws from it must seed it and not
    ask for work in between.

    at_once: jobs on their way at the same time.
    """

    def __init__(self, jobs: Sequence[Callable[[], None]], at_once: int) -> None:
        self._waiting: Iterator[_Runner] = iter([_Runner(job) for job in jobs])
        self._at_once = at_once

    def run(self) -> None:
        """Run all jobs to their end, and raise what the first of those raised that did. What comes
        up here, such as an interrupt, is raised at once in every job that is on its way, and then
        again."""
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
    """A job on a thread of its own, which runs only between `go_on` and its next request."""

    def __init__(self, job: Callable[[], None]) -> None:
        self._job = job
        self._turn = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self.ended = False
        self.works: Sequence[Work[Any]] = ()
        self.results: list[Result[Any]] = []
        self.raised: BaseException | None = None
        self._stopped_by: BaseException | None = None
        self._stopping = False

    def go_on(self) -> None:
        """Let the job run until it asks for work or ends."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        self._turn.release()
        self._back.acquire()

    def stop(self, failure: BaseException) -> None:
        """Raise `failure` where the job waits or asks next, and let it end."""
        if self._thread is None:
            return
        self._stopped_by = failure
        while not self.ended:
            self.go_on()

    def ask(self, works: Sequence[Work[Any]]) -> list[Result[Any]]:
        """Called on the job's own thread: the results of `works`, once they have been done."""
        if self._stopping:
            return [Result(work.run(), 0.0) for work in works]
        self.works = works
        self._back.release()
        self._turn.acquire()
        if self._stopped_by is not None:
            self._stopping = True  # from here on the job clears up
            raise self._stopped_by
        results = self.results
        self.results = []
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
    """Do what they wait for."""
    results = iter(run_grouped([work for runner in runners for work in runner.works]))
    for runner in runners:
        runner.results = list(islice(results, len(runner.works)))
        runner.works = ()
