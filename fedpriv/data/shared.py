"""Data sets that several runs of one process have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedpriv.data.base import Corpus, DataSet
from fedpriv.util.streams import Streams

_kept: dict[tuple[str, Streams], Corpus] | None = None


@contextmanager
def loaded_once() -> Iterator[None]:
    """Context in which equal settings of a data set, with equal streams, are loaded once and kept
    in memory."""
    global _kept
    before = _kept
    _kept = {}
    try:
        yield
    finally:
        _kept = before


def load(data: DataSet, streams: Streams) -> Corpus:
    """The records of `data`; nobody may change them."""
    if _kept is None:
        return data.load(streams)
    key = (repr(data), streams)
    if key not in _kept:
        _kept[key] = data.load(streams)
    return _kept[key]
