"""A seam for work that several runs, or several parties, of one process may do in one go.

Where nobody gathers, work is done at once. In a sweep whose runs go in lock step (`fedpriv.stacked`), a run that asks
for work waits until the others have asked too; a party that yields work in place of messages waits for the others of
its step. Work of one kind is done together.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
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


class Gatherer(Protocol):
    """Whoever lets work wait."""

    def ask(self, works: Sequence[Work[Any]]) -> list[Any]:
        """The results of `works`, as soon as they have been done."""


class _Here(threading.local):
    gatherer: Gatherer | None = None


_here = _Here()


def done(work: Work[T]) -> T:
    """The result of `work`, done here or where this thread's work is gathered."""
    if _here.gatherer is None or work.kind is None:
        return work.alone()
    [result] = _here.gatherer.ask([work])
    return result  # type: ignore[no-any-return]


def all_done(works: Sequence[Work[Any]]) -> list[Any]:
    """The results of `works`, each of some kind, done here or where this thread's work is gathered."""
    return in_groups(works) if _here.gatherer is None else _here.gatherer.ask(works)


def in_groups(works: Sequence[Work[Any]]) -> list[Any]:
    """The results of `works`, those of one kind made together."""
    results: dict[int, Any] = {}
    for places in by_kind(works):
        group = [works[place] for place in places]
        results |= zip(places, type(group[0]).together(group), strict=True)
    return [results[place] for place in range(len(works))]


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
