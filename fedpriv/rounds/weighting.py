"""Weights of each unit's contribution in each silo. The weights of one unit add up to at most
1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

WEIGHT_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Weighting(ABC):
    """A rule for weights. Rules compare by value: an aggregation that supports one rule only
    compares with it.

    needs_counts: whether weights depend on how many records each unit has in each silo.
    own_units: whether each unit belongs to one silo, as a record does. Number i of one silo and
        number i of another silo are then different units, each with one weight.
    """

    needs_counts: ClassVar[bool] = False
    own_units: ClassVar[bool] = False

    @abstractmethod
    def weights(self, counts: np.ndarray) -> np.ndarray:
        """Weights (n_silos, n_units) float64 from record counts of that shape. Columns sum to at
        most 1 unless `own_units`. If `needs_counts` is False, only the shape of `counts` is
        used."""

    def spread(self, n_silos: int) -> float:
        """n times the sum of a unit's squared weights over n silos, in the worst case.

        It says how much more the silos' single messages reveal than their sum: 1 for equal weights,
        and n, the worst case, for a unit that may be in one silo only.
        """
        return float(n_silos)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        """Row `silo` of weights that need no counts, (n_units,) float64, for counts of `shape`. A
        silo computes it without trusting another party. Raises ValueError for weights beyond the
        sensitivity bound."""
        row: np.ndarray = bounded_weights(self.weights(np.zeros(shape, dtype=np.int64)))[silo]
        return row

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        """Raise ValueError unless `weights` can be a silo's row. Another party has computed them
        from the counts of all silos.

        counts: the silo's own counts, (n_units,) int64. A single silo cannot check the sum of a
            unit's weights over silos.
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
    """Return `weights` (n_silos, n_units). Raises ValueError if they break the sensitivity
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
    """1 / S for every pair of a unit and a silo, even if the unit has no records there."""

    def spread(self, n_silos: int) -> float:
        return 1.0

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.full(counts.shape, 1.0 / len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        # A view of one number: the rows of many silos need no memory.
        return np.broadcast_to(1.0 / shape[0], shape[1])


@dataclass(frozen=True)
class RecordWeighting(Weighting):
    """n_su / N_u, and 0 for a unit without records.

    Kato et al., Uldp-FL, PVLDB 2024, equation 4.
    """

    needs_counts = True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        shares: np.ndarray = counts / np.maximum(counts.sum(axis=0), 1)
        return shares

    def check_row(self, weights: Any, counts: np.ndarray) -> None:
        super().check_row(weights, counts)
        if np.any(weights[counts == 0]):
            raise ValueError("some are for units without records here")


@dataclass(frozen=True)
class OwnWeighting(Weighting):
    """The unit is the silo itself, with weight 1."""

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.eye(len(counts))

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        own = np.zeros(shape[1])
        own[silo] = 1.0
        return own


@dataclass(frozen=True)
class RecordsInFull(Weighting):
    """The units are each silo's own records, with weight 1."""

    own_units = True

    def weights(self, counts: np.ndarray) -> np.ndarray:
        return np.ones(counts.shape)

    def own_weights(self, silo: int, shape: tuple[int, int]) -> np.ndarray:
        return np.broadcast_to(1.0, shape[1])


WEIGHTINGS: dict[str, Weighting] = {"uniform": UniformWeighting(), "records": RecordWeighting()}
"""Weightings by their names in the configuration."""
