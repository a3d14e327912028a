"""One peer's numbers in an aggregation: Algorithm 1 of SecureD-FL, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Averaging:
    """The variables of ADMM, all of shape (d,).

    vector: the peer's own, w.
    dual: lambda, uniform on [0, 1) at first.
    z: the average so far, which all peers know.
    x: the peer's own estimate.
    """

    vector: np.ndarray
    dual: np.ndarray
    z: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.z = np.zeros_like(self.vector)

    def message(self, rho: float) -> np.ndarray:
        """Minimise over x; return y of the next iteration."""
        self.x = (2 * self.vector - self.dual + rho * self.z) / (2 + rho)
        return self.x + self.dual / rho

    def take(self, z: np.ndarray, rho: float) -> float:
        """Continue with the new z; return how far its coordinates have moved at most."""
        step = float(np.abs(z - self.z).max(initial=0.0))
        self.dual = self.dual + rho * (self.x - z)
        self.z = z
        return step
