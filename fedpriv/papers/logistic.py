"""What logistic regressions that bounds are held to have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedpriv.data.base import Records


def bounded(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Features and a constant, (n, d) float64, scaled so that every |x| is at most 1; labels -1 and
    1, (n,)."""
    x = np.hstack([records.x.astype(np.float64), np.ones((len(records), 1))])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    return x, 2.0 * records.y - 1


def sigmoid(z: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(z)
