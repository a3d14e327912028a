"""What aggregations whose messages are masked integers have in common: the ring, and who learns what."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedpriv.aggregation.base import Aggregation
from fedpriv.aggregation.fixed_point import FixedPoint, check_ring

if TYPE_CHECKING:
    from fedpriv.algorithms.base import Federation
    from fedpriv.mechanisms.base import Mechanism

UNBOUNDED_RANGE = 1e4
"""Range for methods that bound no message, such as federated averaging; far above any update that still trains."""


@dataclass(frozen=True)
class RingAggregation(Aggregation):
    """Sums modulo 2^bits, of which the server sees nothing else.

    range: largest size of a coordinate of a silo's noised, weighted vector, a public bound; beyond it OutOfRange.
    null: chosen from the clip bound, the noise and the number of silos, `UNBOUNDED_RANGE` where nothing is clipped.
    """

    bits: int = 64
    range: float | None = None

    def __post_init__(self) -> None:
        check_ring(self.bits, self.range)

    @property
    def hides_messages(self) -> bool:
        return True

    @property
    def hides_counts(self) -> bool:
        return False

    def code(self, covered: int, bound: float, federation: Federation, mechanism: Mechanism) -> FixedPoint:
        derived = UNBOUNDED_RANGE if bound == math.inf else bound
        code = FixedPoint(self.bits, derived if self.range is None else self.range, covered)
        _ = code.precision  # raises when nothing fits
        return code
