"""A cache of loaded data sets for the runs of one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fedpriv.data.base import Corpus, DataSet
from fedpriv.util.streams import Streams

_cache: dict[tuple[str, Streams], Corpus] | None = None


@contextmanager
def loaded_once() -> Iterator[None]:
    """Context in which each data set is loaded once per settings and streams, and stays in
    memory."""
    global _cache
    before = _cache
    _cache = {}
    try:
        yield
    finally:
        _cache = before


def load(data: DataSet, streams: Streams) -> Corpus:
    """The records of `data`. They may be shared, so the caller must not change them."""
    if _cache is None:
        return data.load(streams)
    key = (repr(data), streams)
    if key not in _cache:
        _cache[key] = data.load(streams)
    return _cache[key]
