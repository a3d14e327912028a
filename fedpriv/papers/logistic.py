"""Shared parts of the logistic regressions on which theoretical bounds are tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedpriv.data.base import Records


def bounded_features(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Features with a constant appended, scaled to norms of at most 1, (n, d) float64, and labels
    -1 and 1, (n,)."""
    x = np.hstack([records.x.astype(np.float64), np.ones((len(records), 1))])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    return x, 2.0 * records.y - 1


def sigmoid(z: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(z)
