"""What algorithms have in common in which every record of a silo contributes a vector of its
own.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.weighting import RecordsInFull, Weighting

if TYPE_CHECKING:
    from fedpriv.data.silo import SiloData


class RecordAlgorithm(Algorithm, ABC):
    """The unit that contributes is the record, with weight 1; its id is its position in the silo's
    data.

    How many records each silo has is public. Contributions of some of them, such as a batch, are as
    good as of all: the others count as zero.
    """

    @property
    def unit_weighting(self) -> Weighting:
        return RecordsInFull()

    def of_records(self) -> RecordAlgorithm:
        return self

    @property
    def queries_need_allocation(self) -> bool:
        return True

    def n_units(self, federation: Federation) -> int:
        return max(federation.silo_records, default=1)

    def unit_counts(self, silo: int, data: SiloData, federation: Federation) -> np.ndarray:
        counts = np.zeros(self.n_units(federation), dtype=np.int64)
        counts[: len(data.x)] = 1
        return counts
