"""Train/test splits and scaling. Both depend on the private records: non-private preprocessing, as
in the papers."""

from __future__ import annotations

import math

import numpy as np

from fedpriv.data.base import Corpus, Records
from fedpriv.util.streams import Streams


def share(n: int, fraction: float) -> int:
    """`fraction` of n, rounded up after rounding errors of floating point are removed."""
    return math.ceil(round(fraction * n, 9))


def stratified(
    labels: np.ndarray, n_test: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of training records and of `n_test` test records, both ascending: a random split
    that keeps the proportions of the classes.

    labels: (n,) any values. Each class gives its exact share rounded down; the classes with the
        largest remainders give one record more until there are `n_test`.
    """
    _, label, counts = np.unique(labels, return_inverse=True, return_counts=True)
    quota, remainder = np.divmod(n_test * counts, len(labels))
    quota[np.argsort(-remainder, kind="stable")[: n_test - quota.sum()]] += 1
    order = rng.permutation(len(labels))
    order = order[np.argsort(label[order], kind="stable")]  # class by class, shuffled within each
    place = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[order[place < np.repeat(quota, counts)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def split_rows(labels: np.ndarray, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of training and test records: a `stratified` split with a fifth of test
    records."""
    return stratified(labels, share(len(labels), 0.2), streams.generator("train/test split"))


def split_corpus(x: np.ndarray, y: np.ndarray, streams: Streams, *, scale: bool) -> Corpus:
    """A stratified 80/20 split of features (n, ...) and classes (n,) of any numeric type.

    scale: whether features (n, d) are standardised on the training part.
    """
    train, test = split_rows(y, streams)
    parts = standardised(x[train], x[test]) if scale else [x[train], x[test]]
    y = y.astype(np.int64)
    return Corpus(Records(parts[0], y[train]), Records(parts[1], y[test]))


def standardised(train: np.ndarray, *others: np.ndarray, ddof: int = 0) -> list[np.ndarray]:
    """`train` (n, d) and `others` minus the training mean, divided by the training standard
    deviation, as float32 arrays in the order given.

    ddof: as numpy's `std`.

    A constant training column is divided by 1.
    """
    train = np.asarray(train, dtype=np.float64)
    mean = train.mean(axis=0)
    std = train.std(axis=0, ddof=ddof)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    return [((x - mean) / std).astype(np.float32) for x in (train, *others)]
