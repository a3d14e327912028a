"""How much each unit's contribution in each silo counts in the sum. The weights of a unit add up to at most 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

WEIGHT_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Weighting(ABC):
    """A rule for weights, as a value: an aggregation that serves one rule alone compares it."""

    @property
    def needs_counts(self) -> bool:
        """Whether weights depend on how many records each unit has in each silo."""
        return False

    @abstractmethod
    def weights(self, counts: np.ndarray) -> np.ndarray:
        """(n_silos, n_units) float64 from record counts of that shape; columns sum to at most 1. Where `needs_counts`
        is False only the shape of `counts` is used."""


@dataclass(frozen=True)
class UniformWeighting(Weighting):
    """1 / S for every pair of a unit and a silo, also where the unit has no records."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.full(counts.shape, 1.0 / len(counts))


@dataclass(frozen=True)
class RecordWeighting(Weighting):
    """n_su / N_u, and 0 for a unit without records (Kato et al., Uldp-FL, PVLDB 2024, equation 4)."""

    @property
    def needs_counts(self) -> bool:
        return True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        shares: np.ndarray = counts / np.maximum(counts.sum(axis=0), 1)
        return shares


@dataclass(frozen=True)
class OwnWeighting(Weighting):
    """The unit is the silo itself, which counts in full."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.eye(len(counts))


WEIGHTINGS: dict[str, Weighting] = {"uniform": UniformWeighting(), "records": RecordWeighting()}
"""By the names that users type."""
