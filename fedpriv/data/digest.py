"""Digests of records, by which a run recognises its data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedpriv.data.allocation import Allocation
from fedpriv.data.base import Corpus


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
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
