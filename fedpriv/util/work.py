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
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

T = TypeVar("T")


class Work(ABC, Generic[T]):
    """A computation that may run in one batch with others of its class.

    seconds: its running time, or the batch's divided by the number of its works; 0 before it has
        run.
    """

    seconds: ClassVar[float] = 0.0

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


class WorkCollector(Protocol):
    """Collects work of several threads and runs it in batches."""

    def ask(self, works: Sequence[Work[Any]]) -> list[Any]:
        """Wait until `works` have run, and return their results in the same order."""


class _Here(threading.local):
    collector: WorkCollector | None = None


_here = _Here()


def run_work(work: Work[T]) -> T:
    """Run `work` here, or pass it to this thread's collector, and return the result."""
    if _here.collector is None or work.batch_key is None:
        since = time.perf_counter()
        result = work.run()
        _set_seconds([work], time.perf_counter() - since)
        return result
    [result] = _here.collector.ask([work])
    return result


def run_all(works: Sequence[Work[Any]]) -> list[Any]:
    """Run `works` here, or pass them to this thread's collector, and return their results. They may
    have different classes and batch keys."""
    return run_grouped(works) if _here.collector is None else _here.collector.ask(works)


def run_grouped(works: Sequence[Work[Any]]) -> list[Any]:
    """The results of `works`, in their order. Works with equal batch keys run in one batch."""
    by_place: dict[int, Any] = {}
    for places in group_by_batch_key(works):
        group = [works[place] for place in places]
        since = time.perf_counter()
        results = type(group[0]).run_batch(group)
        _set_seconds(group, time.perf_counter() - since)
        by_place |= zip(places, results, strict=True)
    return [by_place[place] for place in range(len(works))]


def _set_seconds(works: Sequence[Work[Any]], seconds: float) -> None:
    for work in works:
        object.__setattr__(work, "seconds", seconds / len(works))  # works may be frozen


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
