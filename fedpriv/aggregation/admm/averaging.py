"""One peer's numbers in an aggregation: Algorithm 1 of SecureD-FL, in float64."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Averaging:
    """vector: the peer's own, w (d,).
    dual: lambda (d,), uniform on [0, 1) at first.
    z: what all peers know (d,).
    """

    vector: np.ndarray
    dual: np.ndarray
    z: np.ndarray = field(init=False)
    x: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.z = np.zeros_like(self.vector)

    def message(self, rho: float) -> np.ndarray:
        """y of the next iteration, after x is minimised."""
        self.x = (2 * self.vector - self.dual + rho * self.z) / (2 + rho)
        return self.x + self.dual / rho

    def take(self, z: np.ndarray, rho: float) -> float:
        """Go on with the new z; how far its coordinates have moved at most."""
        step = float(np.abs(z - self.z).max(initial=0.0))
        self.dual = self.dual + rho * (self.x - z)
        self.z = z
        return step
