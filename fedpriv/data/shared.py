"""Loading data sets with their digests, and a cache of them for the runs of one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fedpriv.data.base import Corpus, DataSet
from fedpriv.data.digest import digest_corpus, digest_files
from fedpriv.data.files import files_read
from fedpriv.util.streams import Streams


@dataclass(frozen=True)
class Loaded:
    """A loaded data set.

    corpus: its records. They may be shared, so nobody may change them.
    records: digest of the records.
    source: digest that is the same for every seed of a run: of the files that were read, or else of
        the records as seed 0 has them.
    """

    corpus: Corpus
    records: str
    source: str


_cache: dict[tuple[str, Streams], Loaded] | None = None


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


def load(data: DataSet, streams: Streams) -> Loaded:
    """The records of `data` and their digests. Raises what `DataSet.load` does."""
    if _cache is None:
        return _load(data, streams)
    key = (repr(data), streams)
    if key not in _cache:
        _cache[key] = _load(data, streams)
    return _cache[key]


def _load(data: DataSet, streams: Streams) -> Loaded:
    with files_read() as paths:
        corpus = data.load(streams)
    records = digest_corpus(corpus)
    if paths:
        source = digest_files(paths)
    elif streams.seed == 0:
        source = records
    else:
        source = load(data, Streams(0)).records
    return Loaded(corpus, records, source)
