"""How much each unit's contribution in each silo counts in the sum. The weights of a unit add up to
at most 1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

WEIGHT_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Weighting(ABC):
    """A rule for weights, as a value: an aggregation that serves one rule alone compares it."""

    @property
    def needs_counts(self) -> bool:
        """Whether weights depend on how many records each unit has in each silo."""
        return False

    @property
    def own_units(self) -> bool:
        """Whether units are a silo's own, such as its records: number i of one silo is then another
        unit than number i of the next, and its weight there is all that it has."""
        return False

    @abstractmethod
    def weights(self, counts: np.ndarray) -> np.ndarray:
        """(n_silos, n_units) float64 from record counts of that shape. Columns sum to at most 1
        unless `own_units`; where `needs_counts` is False only the shape of `counts` is used."""

    def spread(self, n_silos: int) -> float:
        """The largest n times the sum of a unit's squared weights over n silos: how much more the
        silos' single messages tell than their sum. 1 for equal weights; n, the worst, for a unit
        that may be in one silo only.
        """
        return float(n_silos)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        """Row `silo` of the weights for counts of `shape`, (n_units,) float64, where they need no
        counts: a silo then believes nobody. Raises ValueError for weights beyond the sensitivity
        bound."""
        row: np.ndarray = bounded_weights(self.weights(np.zeros(shape, dtype=np.int64)))[silo]
        return row

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        """Raise ValueError unless `weights`, which somebody else made of everybody's counts, can be
        a silo's row.

        counts: the silo's own, (n_units,) int64. What a unit's weights add up to over silos no
        single one can tell.
        """
        if (
            not isinstance(weights, np.ndarray)
            or weights.dtype != np.float64
            or weights.shape != counts.shape
        ):
            raise ValueError(f"not {len(counts)} numbers in float64")
        if not ((weights >= 0) & (weights <= 1)).all():  # NaN is neither
            raise ValueError("some are not between 0 and 1")


def bounded_weights(weights: np.ndarray) -> np.ndarray:
    """The same weights (n_silos, n_units). Raises ValueError where they break the sensitivity
    bound."""
    worst = weights.sum(axis=0).max()
    if not (weights.min() >= 0 and worst <= 1 + WEIGHT_TOLERANCE):
        raise ValueError(
            f"weights of a unit add up to {worst}: the sensitivity bound needs at most 1, none "
            "negative"
        )
    return weights


@dataclass(frozen=True)
class UniformWeighting(Weighting):
    """1 / S for every pair of a unit and a silo, also where the unit has no records."""

    def spread(self, n_silos: int) -> float:
        return 1.0

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.full(counts.shape, 1.0 / len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(
            1.0 / shape[0], shape[1]
        )  # one number, however many silos keep their rows


@dataclass(frozen=True)
class RecordWeighting(Weighting):
    """n_su / N_u, and 0 for a unit without records (Kato et al., Uldp-FL, PVLDB 2024, equation
    4).
    """

    @property
    def needs_counts(self) -> bool:
        return True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        shares: np.ndarray = counts / np.maximum(counts.sum(axis=0), 1)
        return shares

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        super().check_row(weights, counts)
        if np.any(weights[counts == 0]):
            raise ValueError("some are for units without records here")


@dataclass(frozen=True)
class OwnWeighting(Weighting):
    """The unit is the silo itself, which counts in full."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.eye(len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        own = np.zeros(shape[1])
        own[silo] = 1.0
        return own


@dataclass(frozen=True)
class RecordsInFull(Weighting):
    """The units are each silo's own records, which count in full."""

    @property
    def own_units(self) -> bool:
        return True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.ones(counts.shape)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(1.0, shape[1])


WEIGHTINGS: dict[str, Weighting] = {"uniform": UniformWeighting(), "records": RecordWeighting()}
"""By the names that users type."""
