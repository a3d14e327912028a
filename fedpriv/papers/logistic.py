"""The logistic regressions on which theoretical bounds are tested."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit


def bounded_breast_cancer() -> tuple[np.ndarray, np.ndarray]:
    """The embedded training records: features with a constant appended, scaled to norms of at most
    1, (n, d) float64, and labels -1 and 1, (n,)."""
    from fedpriv.data.embedded import BreastCancer
    from fedpriv.util.streams import Streams

    records = BreastCancer().load(Streams(0)).train
    x = np.hstack([records.x.astype(np.float64), np.ones((len(records), 1))])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
    return x, 2.0 * records.y - 1


@dataclass(frozen=True)
class LogisticRisk:
    """f, the mean over N parts of f_i: the mean logistic loss on the part's records plus
    strong_convexity / 2 |theta|^2.

    x: features, (N, m, d); only the first counts[i] rows of part i count.
    y: labels -1 and 1, (N, m).
    counts: records of each part, at least 1, (N,).
    strong_convexity: lambda.
    """

    x: np.ndarray
    y: np.ndarray
    counts: np.ndarray
    strong_convexity: float = 0.0

    @property
    def shares(self) -> np.ndarray:
        """Each record's share of f, (N, m)."""
        counts = self.counts[:, None]
        return np.asarray((np.arange(self.x.shape[1]) < counts) / counts / len(counts))

    @property
    def smoothness(self) -> float:
        """L, of every f_i."""
        parts = len(self.counts)
        hessians = np.einsum("nmd,nme,nm->nde", self.x, self.x, self.shares) * parts / 4
        return float(np.linalg.eigvalsh(hessians).max()) + self.strong_convexity

    def value(self, theta: np.ndarray) -> np.ndarray:
        """f at theta (..., d); shape (...)."""
        losses = np.logaddexp(0, -self._margins(theta))
        risk = (losses * self.shares).sum(axis=(-2, -1))
        return np.asarray(risk + self.strong_convexity / 2 * (theta**2).sum(axis=-1))

    def gradient(self, theta: np.ndarray) -> np.ndarray:
        """grad f at theta (..., d); same shape."""
        pulls = -self.y * expit(-self._margins(theta)) * self.shares
        pulled = np.einsum("...nm,nmd->...d", pulls, self.x)
        return np.asarray(pulled + self.strong_convexity * theta)

    def minimum(self) -> tuple[np.ndarray, float]:
        """The minimiser of f, (d,), and the value there."""
        from scipy.optimize import minimize

        def value(theta: np.ndarray) -> float:
            return float(self.value(theta))

        start = np.zeros(self.x.shape[2])
        options: Any = {"ftol": 1e-15, "gtol": 1e-10}
        found = minimize(value, start, jac=self.gradient, method="L-BFGS-B", options=options)
        return found.x, float(found.fun)

    def _margins(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("nmd,...d->...nm", self.x, theta) * self.y)
