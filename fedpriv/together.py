"""A seam for work that several runs, or several parties, of one process may do in one go.

Where nobody gathers, work is done at once. In a sweep whose runs go in lock step (`fedpriv.stacked`), a run that asks
for work waits until the others have asked too; a party that yields work in place of messages waits for the others of
its step. Work of one kind is done together.
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
    def kind(self) -> Hashable:
        """Works of equal kinds can be done together; None: this one cannot wait for others."""

    @property
    def nbytes(self) -> int:
        """Memory of the result, so far as it matters to whoever lets many wait."""
        return 0

    @abstractmethod
    def alone(self) -> T:
        """The result."""

    @classmethod
    @abstractmethod
    def together(cls, works: Sequence[Self]) -> list[T]:
        """The results of works of one kind, each what `alone` gives up to float rounding."""


@dataclass(frozen=True, eq=False)
class Several(Work[list[T]], Generic[T]):
    """Works that one party waits for at once, and their results."""

    works: Sequence[Work[T]]

    @property
    def nbytes(self) -> int:
        return sum(work.nbytes for work in self.works)

    @property
    def kind(self) -> Hashable:
        kinds = tuple((type(work), work.kind) for work in self.works)
        return None if any(kind is None for _, kind in kinds) else kinds

    def alone(self) -> list[T]:
        return [work.alone() for work in self.works]

    @classmethod
    def together(cls, works: Sequence[Several[T]]) -> list[list[T]]:
        results = (made.result for made in in_groups([one for work in works for one in work.works]))
        return [list(islice(results, len(work.works))) for work in works]


@dataclass(frozen=True)
class Done(Generic[T]):
    """The result of work, and its part of the seconds that all that was done with it took."""

    result: T
    seconds: float


class Ahead(Generic[T]):
    """Work whose result is asked for later, once. Whoever can do it together with others' may do it before.

    make: the work, which is made when it is needed first and let go of when it has been done: copies of records and
    buffers would else wait for the end of a query in every silo of the process.
    """

    def __init__(self, make: Callable[[], Work[T]]) -> None:
        self._make: Callable[[], Work[T]] | None = make
        self._made: Work[T] | None = None
        self._given: list[Done[T]] = []
        self.seconds = 0.0  # what it took, if it was done before

    @property
    def work(self) -> Work[T]:
        """What is to be done. Raises RuntimeError when it has been."""
        if self._made is None:
            if self._make is None:
                raise RuntimeError("the result of work is asked for twice")
            self._made, self._make = self._make(), None
        return self._made

    @property
    def waits(self) -> bool:
        """Whether anything is gained if it waits for others'."""
        return self.work.kind is not None

    @property
    def given(self) -> bool:
        """Whether it has been done, and not been asked for yet."""
        return bool(self._given)

    def give(self, made: Done[T]) -> None:
        """What it comes to."""
        self.taken()
        self._given, self.seconds = [made], made.seconds

    def taken(self) -> Work[T]:
        """The work, for whoever does it; kept no longer."""
        work, self._made = self.work, None
        return work

    def result(self) -> T:
        """What it comes to, done now if it was not before; kept no longer."""
        return self._given.pop().result if self._given else done(self.taken())


class Gatherer(Protocol):
    """Whoever lets work wait."""

    def ask(self, works: Sequence[Work[Any]]) -> list[Done[Any]]:
        """The results of `works`, as soon as they have been done."""


class _Here(threading.local):
    gatherer: Gatherer | None = None


_here = _Here()


def done(work: Work[T]) -> T:
    """The result of `work`, done here or where this thread's work is gathered."""
    if _here.gatherer is None or work.kind is None:
        return work.alone()
    [made] = _here.gatherer.ask([work])
    return made.result  # type: ignore[no-any-return]


def all_done(works: Sequence[Work[Any]]) -> list[Done[Any]]:
    """The results of `works`, each of some kind, done here or where this thread's work is gathered."""
    return in_groups(works) if _here.gatherer is None else _here.gatherer.ask(works)


def in_groups(works: Sequence[Work[Any]]) -> list[Done[Any]]:
    """The results of `works`, those of one kind made together."""
    made: dict[int, Done[Any]] = {}
    for places in by_kind(works):
        group, since = [works[place] for place in places], time.perf_counter()
        results = type(group[0]).together(group)
        seconds = (time.perf_counter() - since) / len(group)
        made |= {place: Done(result, seconds) for place, result in zip(places, results, strict=True)}
    return [made[place] for place in range(len(works))]


@contextmanager
def gathered_by(gatherer: Gatherer) -> Iterator[None]:
    """Context in which this thread's work goes to `gatherer`."""
    before, _here.gatherer = _here.gatherer, gatherer
    try:
        yield
    finally:
        _here.gatherer = before


def by_kind(works: Sequence[Work[Any]]) -> list[list[int]]:
    """The places of works that can be done together, in the order of their first."""
    groups: dict[Hashable, list[int]] = {}
    for place, work in enumerate(works):
        groups.setdefault((type(work), work.kind), []).append(place)
    return list(groups.values())
