"""Loading data sets with their digests, and a cache of them for the runs of one process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedpriv.data.allocate import Allocation
from fedpriv.data.base import Corpus, DataSet
from fedpriv.data.files import files_read
from fedpriv.util.streams import Streams
from fedpriv.util.untrusted_files import file_digest


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
    memory; also for the contexts within."""
    global _cache
    before = _cache
    _cache = {} if before is None else before
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


def digest_arrays(arrays: Iterable[np.ndarray | None]) -> str:
    """SHA-256, hexadecimal, of the types, shapes and bytes of arrays. None counts as an array."""
    found = hashlib.sha256()
    for array in arrays:
        if array is None:
            found.update(b"none;")
            continue
        found.update(f"{array.dtype.str}{array.shape};".encode())
        found.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return found.hexdigest()


def digest_corpus(corpus: Corpus) -> str:
    """The digest of training and test records, with their silos and owners."""
    parts = (corpus.train, corpus.test)
    return digest_arrays(a for part in parts for a in (part.x, part.y, part.silo, part.user))


def digest_allocation(allocation: Allocation) -> str:
    """The digest of who owns and holds each record, and which records train."""
    sizes = np.array([allocation.n_users, allocation.n_silos])
    return digest_arrays([sizes, allocation.user, allocation.silo, allocation.trains])


def digest_files(paths: Iterable[Path]) -> str:
    """The digest of the contents of files, whatever their folder and order. A path counts once;
    files with the same contents count as often as they exist."""
    each = [_digest_file(path, path.stat().st_mtime_ns, path.stat().st_size) for path in set(paths)]
    return hashlib.sha256("".join(sorted(each)).encode()).hexdigest()


@lru_cache(maxsize=256)
def _digest_file(path: Path, changed: int, size: int) -> str:
    """Cached, because the runs of a sweep read the same files."""
    return file_digest(path, size)
