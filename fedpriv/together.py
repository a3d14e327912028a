"""A seam for work that several runs of one process may do in one go.

Where nobody gathers, work is done at once and alone. In a sweep whose runs go in lock step (`fedpriv.stacked`), a run
that asks for work waits until the others have asked too, and work of one kind is done together.
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

    @abstractmethod
    def alone(self) -> T:
        """The result."""

    @classmethod
    @abstractmethod
    def together(cls, works: Sequence[Self]) -> list[T]:
        """The results of works of one kind, each what `alone` gives up to float rounding."""


class Gatherer(Protocol):
    """Whoever lets work wait."""

    def ask(self, work: Work[T]) -> T:
        """The result of `work`, as soon as it has been done."""


class _Here(threading.local):
    gatherer: Gatherer | None = None


_here = _Here()


def done(work: Work[T]) -> T:
    """The result of `work`, done here or where this thread's work is gathered."""
    if _here.gatherer is None or work.kind is None:
        return work.alone()
    return _here.gatherer.ask(work)


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
