"""Work that several runs, or several parties, of one process can compute in one batch.

Without a collector, work runs at once. With one, it waits:

- In a sweep whose runs go in lock step (`fedpriv.sweeps.side_by_side`), a run that asks for work
  waits until the other runs have asked too.
- A party that yields work in place of messages waits for the other parties of its step.

Works with equal batch keys then run in one batch.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


class Work(ABC, Generic[T]):
    """A computation that may run in one batch with others of its class."""

    @property
    @abstractmethod
    def batch_key(self) -> Hashable:
        """Works of one class with equal keys can run in one batch. None: this work runs alone."""

    @property
    def nbytes(self) -> int:
        """Memory of the result in bytes. A collector that lets many works wait counts it."""
        return 0

    @abstractmethod
    def run(self) -> T:
        """Compute the result."""

    @classmethod
    @abstractmethod
    def run_batch(cls, works: Sequence[Self]) -> list[T]:
        """Compute the results of works with equal batch keys. Each equals the result of `run` up to
        float rounding."""


@dataclass(frozen=True, eq=False)
class WorkList(Work[list[T]], Generic[T]):
    """Several works as one; its result is the list of their results."""

    works: Sequence[Work[T]]

    @property
    def nbytes(self) -> int:
        return sum(work.nbytes for work in self.works)

    @property
    def batch_key(self) -> Hashable:
        keys = tuple((type(work), work.batch_key) for work in self.works)
        return None if any(key is None for _, key in keys) else keys

    def run(self) -> list[T]:
        return [work.run() for work in self.works]

    @classmethod
    def run_batch(cls, works: Sequence[WorkList[T]]) -> list[list[T]]:
        results = (
            result.value for result in run_grouped([one for work in works for one in work.works])
        )
        return [list(islice(results, len(work.works))) for work in works]


@dataclass(frozen=True)
class Result(Generic[T]):
    """The result of one work.

    value: the result.
    seconds: the batch's running time divided by the number of its works.
    """

    value: T
    seconds: float


class DeferredWork(Generic[T]):
    """Work whose result is asked for later, exactly once. A party may compute it earlier, in one
    batch with the work of others.

    create: returns the work. It is called when the work is first needed, and the work is dropped
        once it has run. Otherwise every silo of the process would hold copies of records and
        buffers until the query ends.
    seconds: running time, if the work ran before its result was asked for.
    """

    def __init__(self, create: Callable[[], Work[T]]) -> None:
        self._create: Callable[[], Work[T]] | None = create
        self._work: Work[T] | None = None
        self._results: list[Result[T]] = []
        self.seconds = 0.0

    @property
    def work(self) -> Work[T]:
        """The work. Raises RuntimeError when it has already run."""
        if self._work is None:
            if self._create is None:
                raise RuntimeError("the result of work is asked for twice")
            self._work = self._create()
            self._create = None
        return self._work

    @property
    def batchable(self) -> bool:
        """Whether the work can run in one batch with others."""
        return self.work.batch_key is not None

    @property
    def has_result(self) -> bool:
        """Whether the work has run and its result has not been asked for yet."""
        return bool(self._results)

    def set_result(self, result: Result[T]) -> None:
        """Store the result of the work, which ran in a batch."""
        self.take()
        self._results = [result]
        self.seconds = result.seconds

    def take(self) -> Work[T]:
        """Return the work to the caller, who runs it, and drop it here."""
        work = self.work
        self._work = None
        return work

    def result(self) -> T:
        """Return the result and drop it here. Runs the work now if it has not run yet."""
        return self._results.pop().value if self._results else run_work(self.take())


class WorkCollector(Protocol):
    """Collects work of several threads and runs it in batches."""

    def ask(self, works: Sequence[Work[Any]]) -> list[Result[Any]]:
        """Wait until `works` have run, and return their results in the same order."""


class _Here(threading.local):
    collector: WorkCollector | None = None


_here = _Here()


def run_work(work: Work[T]) -> T:
    """Run `work` here, or pass it to this thread's collector, and return the result."""
    if _here.collector is None or work.batch_key is None:
        return work.run()
    [result] = _here.collector.ask([work])
    return result.value  # type: ignore[no-any-return]


def run_all(works: Sequence[Work[Any]]) -> list[Result[Any]]:
    """Run `works` here, or pass them to this thread's collector, and return their results. They may
    have different classes and batch keys."""
    return run_grouped(works) if _here.collector is None else _here.collector.ask(works)


def run_grouped(works: Sequence[Work[Any]]) -> list[Result[Any]]:
    """The results of `works`, in their order. Works with equal batch keys run in one batch."""
    by_place: dict[int, Result[Any]] = {}
    for places in group_by_batch_key(works):
        group = [works[place] for place in places]
        since = time.perf_counter()
        results = type(group[0]).run_batch(group)
        seconds = (time.perf_counter() - since) / len(group)
        by_place |= {
            place: Result(result, seconds) for place, result in zip(places, results, strict=True)
        }
    return [by_place[place] for place in range(len(works))]


@contextmanager
def collected_by(collector: WorkCollector) -> Iterator[None]:
    """Context in which `run_work` and `run_all` pass this thread's work to `collector`."""
    previous = _here.collector
    _here.collector = collector
    try:
        yield
    finally:
        _here.collector = previous


def group_by_batch_key(works: Sequence[Work[Any]]) -> list[list[int]]:
    """The positions of works that can run in one batch, one list a batch, in the order of their
    first positions."""
    groups: dict[Hashable, list[int]] = {}
    for place, work in enumerate(works):
        groups.setdefault((type(work), work.batch_key), []).append(place)
    return list(groups.values())
