"""Train/test splits and scaling. Both look at the records themselves: non-private preprocessing, as
in the papers."""

from __future__ import annotations

import math

import numpy as np


def share(n: int, fraction: float) -> int:
    """`fraction` of n records, rounded up (of 0.1 * n, not of what floating point makes of it)."""
    return math.ceil(round(fraction * n, 9))


def stratified(
    labels: np.ndarray, n_test: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Random split that keeps the classes' proportions.

    labels: (n,) any values. Returns row numbers of the training and of the `n_test` test records,
    both ascending. A class gives its exact share rounded down; what is still lacking comes from the
    classes with the largest remainders.
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


def standardised(train: np.ndarray, *others: np.ndarray, ddof: int = 0) -> list[np.ndarray]:
    """`train` (n, d) and `others` with the training mean taken off and divided by the training
    standard deviation.

    A constant training column is divided by 1. Returns float32 arrays in the order given.
    """
    train = np.asarray(train, dtype=np.float64)
    mean = train.mean(axis=0)
    std = train.std(axis=0, ddof=ddof)
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    return [((x - mean) / std).astype(np.float32) for x in (train, *others)]
