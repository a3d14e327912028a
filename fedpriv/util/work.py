"""A seam for work that several runs, or several parties, of one process may do in one go.

Where nobody gathers, work is done at once. In a sweep whose runs go in lock step
(`fedpriv.sweeps.side_by_side`), a run that asks for work waits until the others have asked too; a
party that yields work in place of messages waits for the others of its step. Work of one kind is
done together.
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
    """Something to compute."""

    @property
    @abstractmethod
    def batch_key(self) -> Hashable:
        """Works of equal kinds can be done together; None: this one cannot wait for others."""

    @property
    def nbytes(self) -> int:
        """Memory of the result, so far as it matters to whoever lets many wait."""
        return 0

    @abstractmethod
    def run(self) -> T:
        """The result."""

    @classmethod
    @abstractmethod
    def run_batch(cls, works: Sequence[Self]) -> list[T]:
        """The results of works of one kind, each what `run` gives up to float rounding."""


@dataclass(frozen=True, eq=False)
class WorkList(Work[list[T]], Generic[T]):
    """Works that one party waits for at once, and their results."""

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
            made.value for made in run_grouped([one for work in works for one in work.works])
        )
        return [list(islice(results, len(work.works))) for work in works]


@dataclass(frozen=True)
class Result(Generic[T]):
    """The result of work, and its part of the seconds that all that was done with it took."""

    value: T
    seconds: float


class DeferredWork(Generic[T]):
    """Work whose result is asked for later, once. Whoever can do it together with others' may do it
    before.

    make: the work, which is made when it is needed first and let go of when it has been done:
    copies of records and buffers would else wait for the end of a query in every silo of the
    process.
    """

    def __init__(self, make: Callable[[], Work[T]]) -> None:
        self._make: Callable[[], Work[T]] | None = make
        self._made: Work[T] | None = None
        self._given: list[Result[T]] = []
        self.seconds = 0.0  # what it took, if it was done before

    @property
    def work(self) -> Work[T]:
        """What is to be done. Raises RuntimeError when it has been."""
        if self._made is None:
            if self._make is None:
                raise RuntimeError("the result of work is asked for twice")
            self._made = self._make()
            self._make = None
        return self._made

    @property
    def waits(self) -> bool:
        """Whether anything is gained if it waits for others'."""
        return self.work.batch_key is not None

    @property
    def given(self) -> bool:
        """Whether it has been done, and not been asked for yet."""
        return bool(self._given)

    def give(self, made: Result[T]) -> None:
        """What it comes to."""
        self.taken()
        self._given = [made]
        self.seconds = made.seconds

    def taken(self) -> Work[T]:
        """The work, for whoever does it; kept no longer."""
        work = self.work
        self._made = None
        return work

    def result(self) -> T:
        """What it comes to, done now if it was not before; kept no longer."""
        return self._given.pop().value if self._given else run_work(self.taken())


class WorkCollector(Protocol):
    """Whoever lets work wait."""

    def ask(self, works: Sequence[Work[Any]]) -> list[Result[Any]]:
        """The results of `works`, as soon as they have been done."""


class _Here(threading.local):
    collector: WorkCollector | None = None


_here = _Here()


def run_work(work: Work[T]) -> T:
    """The result of `work`, done here or where this thread's work is gathered."""
    if _here.collector is None or work.batch_key is None:
        return work.run()
    [made] = _here.collector.ask([work])
    return made.value  # type: ignore[no-any-return]


def run_all(works: Sequence[Work[Any]]) -> list[Result[Any]]:
    """The results of `works`, each of some kind, done here or where this thread's work is
    gathered.
    """
    return run_grouped(works) if _here.collector is None else _here.collector.ask(works)


def run_grouped(works: Sequence[Work[Any]]) -> list[Result[Any]]:
    """The results of `works`, those of one kind made together."""
    made: dict[int, Result[Any]] = {}
    for places in group_by_batch_key(works):
        group = [works[place] for place in places]
        since = time.perf_counter()
        results = type(group[0]).run_batch(group)
        seconds = (time.perf_counter() - since) / len(group)
        made |= {
            place: Result(result, seconds) for place, result in zip(places, results, strict=True)
        }
    return [made[place] for place in range(len(works))]


@contextmanager
def collected_by(collector: WorkCollector) -> Iterator[None]:
    """Context in which this thread's work goes to `collector`."""
    before = _here.collector
    _here.collector = collector
    try:
        yield
    finally:
        _here.collector = before


def group_by_batch_key(works: Sequence[Work[Any]]) -> list[list[int]]:
    """The places of works that can be done together, in the order of their first."""
    groups: dict[Hashable, list[int]] = {}
    for place, work in enumerate(works):
        groups.setdefault((type(work), work.batch_key), []).append(place)
    return list(groups.values())
