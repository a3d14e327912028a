"""What whoever holds the model remembers between rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fedpriv.parties.messages import digest_of

SLOT = "slot/"


@dataclass(frozen=True)
class State:
    """params: the model's parameters (d,) float64.
    slots: named arrays beside them, such as momentum or SCAFFOLD's control variate. Checkpointed
        whole; a new state shares no array with the old one that anybody changes.
    """

    params: np.ndarray
    slots: Mapping[str, np.ndarray] = field(default_factory=dict)

    def with_params(self, params: np.ndarray, **slots: np.ndarray) -> State:
        """The state with other parameters, and with the named slots replaced."""
        return replace(self, params=params, slots={**self.slots, **slots})

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint holds; `from_arrays` takes it back."""
        return {"params": self.params, **{SLOT + name: value for name, value in self.slots.items()}}

    def digest(self) -> bytes:
        """SHA-256 of all arrays, to tell whether two parties hold the same state."""
        return digest_of(dict(sorted(self.arrays().items())))

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray]) -> State:
        """The state that `arrays` holds; names that belong to no state are left alone."""
        slots = {
            name.removeprefix(SLOT): value
            for name, value in arrays.items()
            if name.startswith(SLOT)
        }
        return State(arrays["params"], slots)
