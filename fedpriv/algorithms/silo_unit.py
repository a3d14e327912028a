"""What algorithms have in common in which a silo contributes one vector made of all of its
records.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.errors import require
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.weighting import OwnWeighting, Weighting

if TYPE_CHECKING:
    from fedpriv.data.base import DataSet
    from fedpriv.data.silo import SiloData


class SiloAlgorithm(Algorithm, ABC):
    """The unit that contributes is the silo, with weight 1."""

    @property
    def unit_weighting(self) -> Weighting:
        return OwnWeighting()

    def n_units(self, federation: Federation) -> int:
        return federation.n_silos

    def unit_counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(federation.n_silos, dtype=np.int64)
        counts[silo] = len(data.x)
        return counts


def require_gradients_of_records(data: DataSet) -> None:
    """Raise ConfigError for data whose loss compares records, so that one record has no gradient to
    clip."""
    allowed = (
        "another data set: its loss compares records, so that one record has no gradient of its own"
    )
    require(data.records_per_draw == 1, "data", type(data).__name__.lower(), allowed)
