"""Graphs of peers: who is whose neighbour, and the weights with which neighbours average."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

Graph = tuple[tuple[float, ...], ...]
"""A row for each peer: 1 for its neighbours, else 0."""


@lru_cache(maxsize=16)
def ring(n: int, chords: float = 0.0, seed: int = 0) -> Graph:
    """n peers on a ring. Each other pair are neighbours too with probability `chords`; 1: all.

    seed: public seed of the other pairs.
    """
    away = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    chosen = np.triu(np.random.default_rng(seed).random((n, n)) < chords, 1)
    near = (away == 1) | (away == n - 1) | chosen | chosen.T
    return tuple(map(tuple, (near & (away > 0)).astype(float).tolist()))


def mixing(graph: Graph) -> np.ndarray:
    """(n, n) float64: symmetric weights of averages with neighbours, whose rows add up to 1:
    1 / (1 + the larger number of neighbours of both) (Metropolis, Hastings)."""
    near = np.array(graph)
    degrees = near.sum(axis=1)
    weights = near / (1 + np.maximum(degrees[:, None], degrees))
    return np.asarray(weights + np.diag(1 - weights.sum(axis=1)))
