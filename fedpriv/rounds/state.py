"""The global state between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.parties.messages import digest_of

SLOT = "slot/"


@dataclass(frozen=True)
class State:
    """The global model and the arrays that an algorithm stores beside it.

    params: parameters of the model, (d,) float64.
    slots: named arrays, such as momentum or SCAFFOLD's control variate. A checkpoint contains all
        of them. Arrays are never changed in place, so states may share them.
    """

    params: np.ndarray
    slots: Mapping[str, np.ndarray] = field(default_factory=dict)

    def with_params(self, params: np.ndarray, **slots: np.ndarray) -> State:
        """The state with other parameters, and with the named slots replaced."""
        return replace(self, params=params, slots={**self.slots, **slots})

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays of a checkpoint; `from_arrays` reads them."""
        return {"params": self.params, **{SLOT + name: value for name, value in self.slots.items()}}

    def digest(self) -> bytes:
        """SHA-256 of all arrays; equal for two parties that hold the same state."""
        return digest_of(dict(sorted(self.arrays().items())))

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> State:
        """The state in a checkpoint; arrays of other names are ignored."""
        slots = {
            name.removeprefix(SLOT): value
            for name, value in arrays.items()
            if name.startswith(SLOT)
        }
        return State(arrays["params"], slots)
