"""Sums of integers modulo R = 2^bits: settings, encoding and schemas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedpriv.aggregation.base import Aggregation, encoding_of
from fedpriv.encoding.fixed_point import UNBOUNDED_RANGE, FixedPoint, check_ring
from fedpriv.errors import require
from fedpriv.parties.schema import Array, Schema, SchemaError
from fedpriv.rounds.plan import Federation
from fedpriv.rounds.query import Query

if TYPE_CHECKING:
    from fedpriv.mechanisms.base import Mechanism


AUTO = "auto"


@dataclass(frozen=True)
class RingAggregation(Aggregation):
    """Sums modulo 2^bits.

    bits: 64, 32, or "auto": 32 where rounding costs next to nothing, else 64 (`Planner`).
    range: public bound on a coordinate of a silo's noised, weighted vector; OutOfRangeError beyond
        it. null: derived from the clip bound, the noise and the number of silos;
        `UNBOUNDED_RANGE` where nothing is clipped. A range below what bounded messages can reach is
        refused, because data would decide whether a run fails.
    """

    bits: int | str = 64
    range: float | None = None

    def __post_init__(self) -> None:
        if self.bits != AUTO:
            check_ring(self.bits, self.range)

    weighs_at_silos = True

    def narrower(self) -> RingAggregation | None:
        return replace(self, bits=32) if self.bits == AUTO else None

    def encoding(
        self, n_summed: int, bound: float, federation: Federation, mechanism: Mechanism
    ) -> FixedPoint:
        reached = self.range is None or self.range >= bound or bound == math.inf
        allowed = f"at least {float(bound)!r}, which messages can reach, or null"
        require(reached, "aggregation.range", self.range, allowed)
        derived = UNBOUNDED_RANGE if bound == math.inf else bound
        bits = self.bits if isinstance(self.bits, int) else 64
        encoding = FixedPoint(bits, derived if self.range is None else self.range, n_summed)
        _ = encoding.precision  # raises when nothing fits
        return encoding


@dataclass(frozen=True)
class InRange(Schema):
    """Integers modulo R in the clear that one honest silo can send."""

    array: Array
    encoding: FixedPoint

    def check(self, message: Any) -> None:
        self.array.check(message)
        if not self.encoding.reached_by(1, message):
            raise SchemaError(f"a coordinate beyond {self.encoding.bound:g}")


def ring_encoding(query: Query) -> FixedPoint:
    """How the query's messages become integers modulo R."""
    return encoding_of(query, FixedPoint)


def ring_message(query: Query) -> Array:
    """Schema of a masked message: any integers modulo R, one for each coordinate."""
    return Array(ring_encoding(query).dtype, (query.size,))


def clear_message(query: Query) -> InRange:
    """Schema of a message in the clear."""
    return InRange(ring_message(query), ring_encoding(query))
